"""Problems and solutions in the formats of other collections."""

import pytest
import torch

from kernelwright.support.errors import UsageError
from kernelwright.toolchain.compiled import Compiled, hidden_parameters, struct_sizes
from kernelwright.workbench.judge import formats
from kernelwright.workbench.judge.cases import Selection
from kernelwright.workbench.judge.formats import tests_of as read
from kernelwright.workbench.judge.judge import judge
from kernelwright.workbench.judge.judging import CannotJudge
from kernelwright.workbench.judge.launch_file import LaunchFile, shapes_of
from kernelwright.workbench.judge.meter import Meter, TooLarge
from kernelwright.workbench.judge.on_cpu import on_cpu
from kernelwright.workbench.judge.sandbox.loading import NoFunction, declaration_of
from kernelwright.workbench.judge.spec import subject_of
from support.judging import FOLDER, GPU, only_native

GENERATOR = torch.Generator
BENCH, MODE = FOLDER / "kernelbench.py", FOLDER / "gpu_mode"


def test_a_model_of_kernelbench(box):
    right = judge(f"{BENCH}:ModelNew", BENCH, box=box, describe=False)
    assert (right.outcome, right.operator) == ("right", "kernelbench"), right.smallest
    wrong = judge(f"{BENCH}:ModelWithoutBias", BENCH, box=box, describe=False)
    assert (wrong.outcome, wrong.smallest.check) == ("wrong", "value")


@pytest.mark.parametrize("what", [MODE, MODE / "task.yml", MODE / "reference.py"])
def test_a_problem_of_gpu_mode_by_any_of_its_files(what):
    op = subject_of(what).operator
    assert op.schema == "(Tensor x0, Tensor x1, Tensor(x2!) x2) -> ()"
    assert [(c.shape, c.use) for c in op.cases] == [
        ((127,), "verify"),
        ((64,), "verify"),
        ((256,), "bench"),
    ]


def test_an_argument_that_holds_the_result_already_is_written_to(tmp_path):
    (tmp_path / "task.yml").write_text("tests:\n  - {size: 5}\n")
    (tmp_path / "reference.py").write_text(
        "import torch\n"
        "def generate_input(size):\n    return torch.ones(size), torch.full((size,), 2.0)\n"
        "def ref_kernel(data):\n    data[1][...] = data[0] + data[0]\n    return data[1]\n"
    )
    assert subject_of(tmp_path).operator.mutated == ("x1",)


def test_a_submission_to_gpu_mode(box):
    target = f"{MODE / 'submission.py'}:custom_kernel"
    right = judge(target, MODE, box=box, describe=False)
    assert right.outcome == "right", right.smallest
    wrong = judge(f"{MODE / 'submission.py'}:forgetful_kernel", MODE, box=box, describe=False)
    assert (wrong.outcome, wrong.smallest.check) == ("wrong", "value")


def test_a_result_goes_to_its_own_argument_of_a_shared_memory():
    """On a GPU, all arguments of a call lie in one storage."""
    base = torch.arange(12.0)
    first, second = base[:4].view(2, 2), base[6:10].view(2, 2)
    for returned in (second, second.view(4)):
        assert formats.settled(returned, [first, second], (1,)) == ()
        assert torch.equal(base, torch.arange(12.0))
    assert formats.settled(second.t(), [first, second], (1,)) == ()
    assert base.tolist() == [0, 1, 2, 3, 4, 5, 6, 8, 7, 9, 10, 11]


CHECKED = FOLDER / "gpu_mode_checked"


@pytest.mark.parametrize("kernel", ["sums", "sums_in_new_memory", "sums_in_half"])
def test_a_problems_own_check_and_tolerance_decide(kernel, box):
    found = judge(f"{CHECKED / 'submission.py'}:{kernel}", CHECKED, box=box, describe=False)
    assert (found.outcome, found.operator) == ("right", "gpu_mode_checked"), found.smallest
    assert [o.case for o in found.passed] == ["1000-u8", "1500-u8"]


def test_inputs_larger_than_a_gpus_memory_are_left_out(tmp_path, monkeypatch):
    """Of a GPU with 16 KiB, an eighth is for the inputs of a call: 512 floats."""
    (tmp_path / "task.yml").write_text("tests:\n  - {size: 400}\n  - {size: 600}\n")
    (tmp_path / "reference.py").write_text(
        "import torch\ndef generate_input(size):\n    return torch.ones(size)\n"
        "def ref_kernel(data):\n    return data + 1\n"
    )
    subject, gpu = subject_of(tmp_path), torch.device("cuda", 0)
    monkeypatch.setattr(formats, "here", lambda: gpu)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (0, 16 << 10))
    monkeypatch.setattr(torch.Tensor, "to", lambda t, *_: t)  # here may be no GPU
    left = [Selection(subject, {}, gpu, ()).left_out(c) for c in subject.operator.cases]
    assert left == [None, "too large for this GPU's memory"]
    assert [subject.sizes(c) for c in subject.operator.cases] == [(1600, 0), (4096, 0)]


@pytest.mark.parametrize(
    ("kernel", "why"),
    [
        ("nothing", "256 elements differ (x1 is uninitialized before the call: NaN here)"),
        ("sums_of_bfloat16", "elements differ"),
        ("too_few", "1 results, should be 0"),
    ],
)
def test_wrong_solutions_of_a_problem_with_a_check(kernel, why, box):
    found = judge(f"{CHECKED / 'submission.py'}:{kernel}", CHECKED, box=box, describe=False)
    assert found.outcome == "wrong" and why in found.smallest.why, found.smallest


def test_modules_imported_meanwhile_may_annotate_with_generators():
    """As those that torch imports while a reference runs."""
    with on_cpu("cpu"):
        assert torch.Generator | None and isinstance(torch.default_generator, torch.Generator)
        assert isinstance(torch.Generator(device="cuda"), torch.Generator)
        assert {torch.Generator: 1}[GENERATOR] == 1


def test_a_call_that_is_too_large_is_not_made():
    with pytest.raises(TooLarge), Meter(1 << 20, 1 << 40):
        torch.empty(1 << 50)
    with Meter(1 << 20, 1 << 40) as meter:
        torch.ones(64, 64) @ torch.ones(64, 64).t()
    assert (meter.bytes, meter.operations) == (3 * 64 * 64 * 4, 2 * 64**3 + 2 * 64**2)


@pytest.mark.long
def test_a_triton_kernel_under_torch_compile(box, tmp_path):
    spec = tmp_path / "twice.py"
    spec.write_text("def reference(x):\n    return 2 * x\n")
    cases = ["5x33-f32", "4x1000-f32"]
    target = f"{FOLDER / 'compiled_triton.py'}:twice"
    found = judge(target, spec, cases=cases, box=box, describe=False)
    assert found.outcome == "right", found.smallest or found.shortage


@pytest.mark.long
@pytest.mark.skipif(GPU, reason="no machine without a GPU on this machine")
def test_sizes_of_a_kernelbench_problem_are_reduced(tmp_path, box):
    (tmp_path / "large.py").write_text(
        "import torch\nN = 1 << 20\nshape = (4096, 3)\nFEATURES = 64\n"
        "class Model(torch.nn.Module):\n"
        "    def __init__(self, features):\n"
        "        super().__init__()\n        self.linear = torch.nn.Linear(features, 2)\n"
        "    def forward(self, a, b):\n        return self.linear(a.sum(1)) + b.sum()\n"
        "class Other(Model):\n    def forward(self, a, b):\n        return self.linear(a.sum(1))\n"
        "def get_inputs():\n    return [torch.rand(N, *shape, FEATURES)[:, :, 0], torch.rand(N)]\n"
        "def get_init_inputs():\n    return [FEATURES]\n"
    )
    problem = tmp_path / "large.py"
    right = judge(f"{problem}:Model", problem, box=box, describe=False)
    assert right.outcome == "right", right.smallest or right.shortage
    (words,) = (w for w in right.left_out if "judged with" in w)
    assert "N=" in words and "in place of 1048576" in words and "FEATURES" not in words
    assert judge(f"{problem}:Other", problem, box=box, describe=False).outcome == "wrong"


def test_the_shapes_that_a_launch_file_declares(box):
    launch = FOLDER / "launch_of_512.py"
    how = {"launch": launch, "box": box, "describe": False}
    found = judge(f"{FOLDER / 'rows.cu'}:row_sum", only_native("5x33-f32-dim=-1", of="sum"), **how)
    assert found.outcome == "right", found.smallest or found.shortage
    assert [o.case for o in found.outcomes] == [f"{n}x512-f32-dim=-1" for n in (1, 6, 33, 1027)]


@pytest.mark.parametrize("shapes", [[], [512], 512, [(None, "n")], [(True, 512)]])
def test_shapes_that_are_none_are_refused(shapes):
    module = type("launch", (), {"shapes": shapes})
    with pytest.raises(LaunchFile, match="shapes: must be a list of shapes"):
        shapes_of(module)


def test_scalars_of_every_kind(box):
    launch = FOLDER / "launch_of_scalars.py"
    cases = ["5x33-f32", "4x1000-f32"]
    how = {"cases": cases, "box": box, "describe": False}
    found = judge(f"{FOLDER / 'scalars.cu'}:line", FOLDER / "two_lines.py", launch=launch, **how)
    assert found.outcome == "right", found.smallest or found.shortage


def test_sizes_of_structs_are_read_from_ptx():
    ptx = (
        ".visible .entry line(\n.param .u64 .ptr .align 1 line_param_0,\n"
        ".param .u32 line_param_1,\n"
        ".param .u8 line_param_2,\n.param .align 2 .b8 line_param_3[2],\n"
        ".param .align 4 .b8 line_param_4[8]\n)\n{ ret; }"
    )
    compiled = Compiled("line", "sm_90a", b"", ptx)
    assert struct_sizes(compiled) == [1, 2, 8]
    assert hidden_parameters(compiled, ("pointer", "i32", "struct", "struct", "struct")) == 0


def test_host_code_in_a_cu(box):
    text = (FOLDER / "host.cu").read_text()
    declared = "torch::Tensor forward(torch::Tensor x, double scale);"
    assert declaration_of(text, "forward").endswith(f"{declared}\n")
    with pytest.raises(NoFunction):
        declaration_of(text, "backward")
    if not GPU:
        with pytest.raises(
            CannotJudge, match="forward is host code, which needs nvcc and a GPU"
        ) as e:
            judge(f"{FOLDER / 'host.cu'}:forward", FOLDER / "two_lines.py", box=box)
        assert e.value.exit_code == 3
    with pytest.raises(UsageError, match=r"--launch: host\.cu needs a launch file"):
        judge(f"{FOLDER / 'host.cu'}:twice", FOLDER / "two_lines.py", box=box)


def test_what_cannot_be_read_is_said(tmp_path):
    task = tmp_path / "task.yml"
    task.write_text("tests:\n  - {size 127}\n")
    with pytest.raises(UsageError, match=r"task.yml:2: this test cannot be read: \{size 127\}"):
        read(task)
    task.write_text("benchmarks:\n  - {size: 127}\n")
    with pytest.raises(UsageError, match="has no `tests`"):
        read(task)
    (tmp_path / "reference.py").write_text("def generate_input(): ...\ndef ref_kernel(data): ...\n")
    task.unlink()
    with pytest.raises(UsageError, match=r"has no task.yml in its folder"):
        subject_of(tmp_path / "reference.py")
