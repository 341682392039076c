"""judge: verdicts on users' kernels, isolation of their processes, errors of wrong usage."""

import json
import os
import re
import shlex
import weakref
from dataclasses import asdict, replace

import pytest
import torch

from kernelwright import cli
from kernelwright.cli import options
from kernelwright.cli.render import verdicts
from kernelwright.contract import case
from kernelwright.machine import here
from kernelwright.support.errors import NoSpace, UsageError
from kernelwright.workbench.judge.judge import judge, judge_all
from kernelwright.workbench.judge.launch_file import LaunchFile, plan_of
from kernelwright.workbench.judge.sandbox import kernels, sandbox
from kernelwright.workbench.judge.sandbox.proxy import SandboxRunner
from kernelwright.workbench.judge.sandbox.sandbox import Arena, Box, Died, Failed, Limits
from kernelwright.workbench.judge.spec import subject_of
from kernelwright.workbench.scaffold import scaffold
from support.judging import FOLDER, GPU, QUICK, SMALL, USER, judged, only_native

# right or wrong


def test_there_is_room_for_the_other_shape_and_for_a_larger_case(monkeypatch):
    monkeypatch.setattr(sandbox, "SHARED", 1 << 16)
    larger = case((256, 768), torch.float32, dim=-1)
    with Box(here(), limits=QUICK, size=256 << 10) as small:
        verdict = judged("softmax", small)
        assert (verdict.outcome, verdict.exit_code) == ("right", 0), verdict.smallest
        assert small.arena.size < 8 * 256 * 768
        verdict = judge(f"{USER}:softmax", only_native(larger), box=small, describe=False)
        assert verdict.outcome == "right", verdict.smallest
        assert small.arena.size >= 8 * 256 * 768


@pytest.mark.parametrize("name", ["softmax", "last_dim", "keywords", "several_kernels"])
def test_right_however_it_is_called(name, box):
    verdict = judged(name, box)
    assert (verdict.outcome, verdict.exit_code) == ("right", 0), verdict.smallest
    assert verdict.held == ({"dim": -1} if name == "last_dim" else {})


def test_an_argument_that_it_does_not_take_leaves_cases_out(box):
    subject = only_native(SMALL, "5x33-f32-dim=-2")
    verdict = judge(f"{USER}:last_dim", subject, box=box, describe=False)
    assert verdict.left_out == {"the kernel takes no dim: only cases with dim=-1": 1}


def test_a_refusal_with_a_reason_is_neither_failure_nor_success(box):
    verdict = judged("picky", box, cases=(SMALL, "5x33-f16-dim=-1"))
    assert verdict.outcome == "right"
    assert [o.why for o in verdict.refused] == ["ValueError: x: must be float32, is torch.float16"]
    nothing = judged("never", box)
    assert (nothing.outcome, nothing.exit_code) == ("inconclusive", 3)
    assert nothing.shortage == "it rejected every input: NotImplementedError: x: not today"


def test_what_it_raises_is_shown_with_its_own_lines(box):
    found = judged("raises_in_a_helper", box).smallest
    assert (found.outcome, found.why) == ("error", "ArithmeticError: no softmax today")
    assert [re.sub(r".*/(\w+\.py):\d+", r"\1", line) for line in found.lines] == [
        "user.py: return _helper(x)",
        'user.py: raise ArithmeticError("no softmax today")',
    ]


def test_the_same_values_come_back_by_seed(box):
    first = judged("forgets_the_sum", box, "softmax.backward")
    assert first.smallest.check == "value"
    again = judged("forgets_the_sum", box, "softmax.backward", seed=first.seed)
    other = judged("forgets_the_sum", box, "softmax.backward")
    assert again.smallest.worst == first.smallest.worst != other.smallest.worst


def test_a_backward_and_gradients_through_autograd(box):
    assert judged("softmax_backward", box, "softmax.backward").outcome == "right"
    through = judged("softmax", box, autograd=True)
    assert through.outcome == "right", through.smallest
    assert judged("wrong_gradient", box).outcome == "right"
    wrong = judged("wrong_gradient", box, autograd=True)
    assert (wrong.operator, wrong.smallest.check) == ("softmax.autograd", "value")
    assert wrong.smallest.command.startswith(f"kernelwright judge {USER}:wrong_gradient --as soft")


def test_a_process_reused_imports_the_files_next_to_each_kernel(box, tmp_path):
    for folder, factor in (("one", 1), ("two", 2)):
        (tmp_path / folder / "package").mkdir(parents=True)
        (tmp_path / folder / "package" / "__init__.py").write_text("")
        (tmp_path / folder / "package" / "part.py").write_text(f"FACTOR = {factor}\n")
        (tmp_path / folder / "factor.py").write_text("from package.part import FACTOR\n")
        (tmp_path / folder / "kernel.py").write_text(
            "from factor import FACTOR\ndef scaled(x):\n    return FACTOR * x\n"
        )
    (tmp_path / "spec.py").write_text("def reference(x):\n    return 2 * x\n")
    how = {"cases": ["5x33-f32"], "box": box, "describe": False}
    for folder, outcome in (("one", "wrong"), ("two", "right"), ("one", "wrong")):
        found = judge(f"{tmp_path / folder / 'kernel.py'}:scaled", tmp_path / "spec.py", **how)
        assert found.outcome == outcome, (folder, found.smallest)


def test_a_process_that_shared_memory_for_small_results_judges_larger_ones(box):
    box.rearm(1 << 20, largest=4)
    assert judged("softmax", box).outcome == "right"


def test_an_implausibly_large_result_is_not_copied(box, tmp_path):
    (tmp_path / "spec.py").write_text("def reference(x):\n    return 2 * x\n")
    (tmp_path / "kernel.py").write_text(
        "def larger(x):\n    return (2 * x).repeat(1 << 20, 2).contiguous()\n"
    )
    how = {"cases": ["5x33-f32"], "box": box, "describe": False}
    found = judge(f"{tmp_path / 'kernel.py'}:larger", tmp_path / "spec.py", **how)
    assert found.outcome == "wrong" and "(5, 33)" in found.smallest.why, found.smallest


def test_an_argument_of_integers_has_no_gradient(box, tmp_path):
    (tmp_path / "loss.py").write_text(
        "import torch\nfrom kernelwright.contract import case\n"
        "def reference(logits, target):\n"
        "    return torch.nn.functional.cross_entropy(logits, target)\n"
        "def inputs(c, device):\n"
        "    g = torch.Generator(device).manual_seed(c.seed)\n"
        "    rows, columns = c.shape\n"
        "    return {'logits': torch.randn(c.shape, generator=g, device=device),\n"
        "            'target': torch.randint(columns, (rows,), generator=g, device=device)}\n"
        "cases = [case((5, 33), torch.float32)]\n"
    )
    loss = tmp_path / "loss.py"
    verdict = judge(f"{loss}:reference", loss, autograd=True, box=box, describe=False)
    assert verdict.outcome == "right", verdict.smallest


def test_the_smallest_failing_case_is_said(box):
    cases = ("2x3x129-f32-dim=-1", "5x33-f32-dim=-1", "4x1000-f32-dim=-1")
    verdict = judged("wrong_gradient", box, autograd=True, cases=cases)
    assert verdict.smallest.case == SMALL and len(verdict.failures) == 3


# isolation


def test_what_is_compiled_is_judged_compiled():
    """Neither the judge's own modes nor many shapes disable torch.compile."""
    subject = subject_of("softmax")
    plain = [c.id for c in subject.operator.cases if c.use == "verify" and c.values == "normal"]
    few = [c for c in plain if c.endswith("dim=-1") and not c.startswith("0-")][:10]
    assert len(few) == 10
    verdict = judge(f"{FOLDER / 'compiled.py'}:softmax", subject, cases=few, quick=True)
    assert verdict.outcome == "right", verdict.smallest
    if not GPU:
        assert verdict.costs.launches == 1, "softmax, as it was compiled"
    silent = replace(verdict.costs, launches=0)
    assert silent.saves()[0] == "fusion: unknown, no PyTorch operator launches its work"


@pytest.mark.parametrize(
    ("name", "limits", "why"),
    [
        ("hangs", Limits(call_s=2.0), "took longer than its time limit"),
        ("crashes", QUICK, "killed by SIGABRT"),
        ("eats_memory", Limits(memory=1 << 29), "took more than its 512 MiB of memory"),
        # it writes to every open file of the process, including the driver's
        ("answers_nonsense", QUICK, "" if GPU else "cannot be read"),
    ],
)
def test_a_process_that_ends_gets_a_verdict(name, limits, why):
    verdict = judge(f"{USER}:{name}", only_native(SMALL), limits=limits, describe=False)
    assert verdict.exit_code == 1 and why in verdict.smallest.why, verdict.smallest


def test_a_file_that_never_ends_its_import_is_told(tmp_path):
    (tmp_path / "endless.py").write_text("while True:\n    pass\n")
    with pytest.raises(UsageError, match="importing it, took longer than its time limit"):
        judge(f"{tmp_path}/endless.py:fn", "softmax", limits=Limits(call_s=1.0))


def test_a_full_disk_is_an_error_and_not_a_verdict(tmp_path, box):
    path = tmp_path / "mine.py"
    path.write_text(
        "class NoSpace(Exception): pass\n"
        "def mine(x, dim):\n"
        "    raise NoSpace('nothing can be built in the cache')\n"
    )
    with pytest.raises(NoSpace, match="nothing can be built in the cache"):
        judge(f"{path}:mine", "softmax", cases=[SMALL], box=box, describe=False)


def test_the_environment_is_scrubbed_and_caches_are_its_own(monkeypatch):
    monkeypatch.setenv("SECRET_TOKEN", "of the user")
    monkeypatch.setenv("LIBRARY_PATH", "/opt/cuda/lib")
    device = torch.device("cpu")
    with Box(device, limits=QUICK) as box:
        box.load(USER, "tells")
        softmax = subject_of("softmax")
        runner = SandboxRunner(
            box, softmax.operator, lambda args: {"listed": [*args.values()], "named": {}}
        )
        args = softmax.of(softmax.operator.inputs(softmax.operator.case(SMALL), "cpu"))
        with pytest.raises(Failed, match="ValueError") as e:
            runner.run(runner.fence(args))
        said, folder = e.value.message, box.process.folder
        assert "'SECRET_TOKEN': ''" in said and f"{folder}/home" in said
        assert "'LIBRARY_PATH': '/opt/cuda/lib'" in said  # compilers need it
        assert f"'TRITON_CACHE_DIR': '{folder}/triton_cache_dir'" in said
        assert folder.stat().st_mode & 0o777 == 0o700
        pid = box.process.pid
    with pytest.raises(Died):
        box.process.ask("start")
    assert not folder.exists()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_what_a_file_prints_or_exits_with_is_told(box):
    found = judged("leaves", box).smallest
    assert (found.outcome, found.why) == ("error", "SystemExit: 7")


def test_blocks_of_the_arena_move_on_and_come_back():
    arena, mine = Arena(torch.device("cpu"), 4096), []
    first = arena.empty(128, torch.float32, mine)
    second = arena.empty(128, torch.float32, mine)
    assert second.storage_offset() == first.storage_offset() + 128
    arena.release(mine)
    third = arena.empty(128, torch.float32, [])
    assert third.storage_offset() == 256  # the previous address is not reused at once
    with pytest.raises(MemoryError, match="used up"):
        arena.empty(4096, torch.float32, [])
    arena.close()


# mistakes


@pytest.mark.parametrize(
    ("target", "how", "message"),
    [
        ("nowhere.py:fn", {}, "nowhere.py:fn: there is no file nowhere.py"),
        (f"{USER}", {}, "name the function as well"),
        (f"{USER}:nope", {}, "user.py has no 'nope'; it has .*softmax"),
        (f"{USER}:number", {}, "number in user.py is a int, not a function"),
        (f"{USER}:five", {}, r"it needs 5 arguments \(a, b, c, d, e\); softmax passes 2 "),
        (f"{FOLDER / 'broken.py'}:fn", {}, "ModuleNotFoundError.*\n .*broken.py:\\d: import"),
        (f"{FOLDER / 'rows.cu'}:row_sum", {"what": "sum"}, "--launch: rows.cu needs a launch file"),
        (
            f"{FOLDER / 'rows.cu'}:row_summ",
            {"what": "sum", "launch": FOLDER / "launch.py"},
            "rows.cu has no kernel 'row_summ'; it has row_sum, row_sum_without_a_barrier",
        ),
        (
            f"{USER}:softmax",
            {"launch": FOLDER / "launch.py"},
            "--launch: user.py is not a .cu file",
        ),
        (f"{USER}:softmax", {"cases": ["3x4"]}, "--case: softmax has no case '3x4'; it has"),
        (f"{USER}:softmax", {"what": "nowhere.py"}, "--as: there is no file nowhere.py"),
        (f"{USER}:softmax", {"what": f"{USER}"}, "has no function `reference`"),
        (f"{USER}:softmax", {"backward": "x", "autograd": True}, "give only one of them"),
        (f"{USER}:softmax", {"what": "sum", "backward": "x"}, "sum has no backward operator"),
    ],
)
def test_a_usage_error_is_explained(target, how, message, box):
    with pytest.raises(UsageError, match=message):
        judge_all(target, how.pop("what", "softmax"), box=box, **how)


def test_the_command_line(capfd, tmp_path):
    page = tmp_path / "verdict.html"
    arguments = ["judge", f"{USER}:never", "--as", "softmax", "--case", SMALL]
    with pytest.raises(SystemExit) as e:
        cli.main([*arguments, "--json", "--html", str(page)])
    assert e.value.code == 3
    (found,) = json.loads(capfd.readouterr().out)
    assert found["outcome"] == "inconclusive" and "arbitrary code" in found["note"]
    assert "INCONCLUSIVE, not enough evidence: it rejected every input" in page.read_text()
    with pytest.raises(SystemExit) as e:
        cli.main(["judge", "nowhere.py:fn", "--as", "softmax"])
    assert e.value.code == 2
    assert "there is no file nowhere.py" in capfd.readouterr().err
    for more, said in (
        (["--timeout", "0"], "--timeout: must be more than 0 seconds"),
        (["--memory", "0"], "--memory: must be more than 0 GiB"),
        (["--html", str(tmp_path / "no" / "page.html")], "--html: there is no folder"),
    ):
        with pytest.raises(SystemExit) as e:
            cli.main([*arguments, *more])
        assert e.value.code == 2 and said in capfd.readouterr().err


def test_the_command_that_is_shown_gives_the_same_verdict(capfd, tmp_path, box):
    """The command is run in a shell, with names that a shell would split."""
    copy = tmp_path / "my kernels.py"
    copy.write_text(USER.read_text())
    how = {"cases": [SMALL], "deterministic": False, "describe": False}
    first = judge(f"{copy}:forgets_the_sum", "softmax.backward", box=box, **how).smallest
    assert "--nondeterministic" in first.command
    with pytest.raises(SystemExit) as e:
        cli.main([*shlex.split(first.command)[1:], "--json"])
    assert e.value.code == 1
    shown = json.loads(capfd.readouterr().out)[0]["smallest"]
    assert shown == json.loads(json.dumps(asdict(first)))


# what is shown


def test_the_screen_and_the_page_say_the_same(box, tmp_path):
    from rich.console import Console

    verdict = judged("wrong_gradient", box, autograd=True)
    odd = replace(verdict, target="<script>alert(1)</script>")
    console = Console(width=200, record=True, file=(tmp_path / "out").open("w"))
    console.print(verdicts.verdict(verdict))
    text = console.export_text()
    assert text.startswith("A kernel is arbitrary code.")
    for words in ("WRONG on 1 of 1 input", SMALL, "value: gx", verdict.smallest.command[:60]):
        assert words in text
    page = verdicts.html([odd])
    assert "<script>alert" not in page and "&lt;script&gt;alert" in page
    assert "default-src &#39;none&#39;" in page or "default-src 'none'" in page
    assert "http://" not in page and "https://" not in page
    with pytest.raises(UsageError, match="--html: there is no folder"):
        options.writable(tmp_path / "no" / "page.html")
    with pytest.raises(UsageError, match=r"--html: .* is a folder"):
        options.writable(tmp_path)


def test_a_fusion_is_worth_what_the_operators_move(box):
    verdict = judged("several_kernels", box, only_native(SMALL), describe=True, quick=True)
    n = 5 * 33 * 4
    assert verdict.costs.launches >= 5 and verdict.costs.least == 2 * n
    assert verdict.costs.moved > 4 * n
    assert verdict.costs.saves()[0].startswith(f"fusion: {verdict.costs.launches} launches move")
    if not GPU:
        assert verdict.no_times == "not timed: timing needs a GPU"
        assert verdict.costs.saves()[1] == "CUDA graph: unknown, because it is timed only on a GPU"
    slow = replace(verdict.costs, gpu_us=10.0, host_us=50.0, timed=SMALL)
    assert slow.saves()[1].startswith(
        "CUDA graph: the host takes 50.0 us per call, the GPU 10.0 us, on"
    )
    assert (
        replace(slow, host_us=5.0).saves()[1].startswith("CUDA graph: nothing, the host is ahead")
    )
    assert replace(slow, launches=1).saves()[0] == "fusion: nothing, a call is one launch"
    assert "launches cannot be counted" in replace(slow, moved=None).saves()[0]
    assert slow.saves(captured=False)[1] == "CUDA graph: the function cannot be captured"


# kernels in other languages


def test_kernels_are_found_beside_proxies_of_what_is_gone():
    """torch.compile leaves such proxies."""
    gone = weakref.proxy(torch.empty(0))
    with pytest.raises(ReferenceError):
        isinstance(gone, int)
    assert all(callable(fn) for fn in kernels._triton_functions())


def test_a_triton_kernel_is_interpreted_and_compiled():
    subject = only_native("4x1000-bf16-dim=-1")
    verdict = judge(f"{FOLDER / 'row.py'}:softmax", subject, quick=True)
    assert verdict.outcome == "right", verdict.smallest
    assert verdict.languages == ("triton",) and verdict.costs.launches == 1
    (kernel,) = verdict.kernels
    assert kernel["kernel"] == "softmax_row" and kernel["threads"] == 128
    assert kernel["resources"]["registers"] > 8 and kernel["resources"]["spill_loads"] == 0
    assert "occupancy" in verdicts.kernel(kernel)


@pytest.mark.long
def test_a_cuda_kernel_with_a_launch_file(box):
    cases = ["5x33-f32-dim=-1", "5x33-f16-dim=-1", "4x1000-f32-dim=-1"]
    target, how = f"{FOLDER / 'rows.cu'}:row_sum", {"launch": FOLDER / "launch.py", "box": box}
    subject = only_native(*cases, of="sum")
    verdict = judge(target, subject, quick=True, **how)
    assert (verdict.outcome, len(verdict.refused)) == ("right", 1), verdict.smallest
    assert verdict.kernels[0]["kernel"] == "row_sum" and verdict.costs.launches == 1
    wrong = judge(f"{target}_by_four", subject, describe=False, **how)
    assert (wrong.smallest.case, wrong.smallest.check) == (cases[0], "value")


def test_an_invalid_launch_file_is_explained(tmp_path):
    from kernelwright.contract import H200, TensorSpec, f64

    subject = subject_of("sum")
    x = TensorSpec.contiguous((4, 8), torch.float32)
    specs = {"x": x, "dim": (-1,), "to": None}

    def plan(launch):
        module = type("launch", (), {"__file__": "launch.py"})()
        if launch:
            module.launch = launch
        return plan_of(module, FOLDER / "rows.cu", "row_sum", H200, subject.operator, specs)

    found = plan(lambda x, y: {"grid": (4, 2), "block": 32, "args": ["x", "y", 8, 0.5, f64(1.0)]})
    (step,) = found.launches
    assert (step.grid, step.block) == ((4, 2, 1), (32, 1, 1))
    assert [getattr(a, "ctype", a) for a in step.args] == ["x", "y", "i32", "f32", "f64"]
    for launch, message in (
        (None, "has no function `launch`"),
        (lambda z: {}, "'z' is neither an argument nor a result; there are x, dim, to, y"),
        (lambda x: {"grid": 1}, "needs grid, block and args"),
        (lambda x: {"grid": 1, "block": 1, "args": [], "threads": 1}, "unknown key threads"),
        (lambda x: {"grid": 1, "block": 1, "args": ["q"]}, "'q' is not a tensor of the call"),
        (lambda x: {"grid": 1, "block": 1, "args": [None]}, "None is a NoneType"),
    ):
        with pytest.raises(LaunchFile, match=message):
            plan(launch)


# specs


def test_a_spec_as_scaffolded(tmp_path, box):
    path = scaffold.spec("my_norm", tmp_path)
    assert len(path.read_text().splitlines()) < 45
    (tmp_path / "kernel.py").write_text(
        "import torch\n\ndef norm(x, weight, eps):\n"
        "    return torch.nn.functional.rms_norm(x, x.shape[-1:], weight, eps)\n"
        "def bare(x, weight):\n    return norm(x, weight, 1e-6)\n"
    )
    cases = ["5x33-f32", "6x40-bf16-permuted"]
    for name in ("norm", "bare"):
        verdict = judge(f"{tmp_path}/kernel.py:{name}", path, cases=cases, box=box, describe=False)
        assert verdict.outcome == "right", verdict.smallest
    assert verdict.held == {"eps": 1e-6}
    with pytest.raises(scaffold.CannotScaffold, match="already exists"):
        scaffold.spec("my_norm", tmp_path)
    with pytest.raises(scaffold.CannotScaffold, match="is not a valid name"):
        scaffold.spec("my norm", tmp_path)


def test_a_spec_of_a_reference_alone(tmp_path):
    subject = subject_of(FOLDER / "two_lines.py")
    op = subject.operator
    assert op.schema == "(Tensor x, float scale=2.0) -> (Tensor y)"
    c = case((5, 33), torch.bfloat16)
    made = subject.of(op.inputs(c, "cpu"))
    assert made["scale"] == 2.0 and made["x"].dtype == torch.bfloat16
    (y,) = op.outputs(**made)
    assert (y.shape, y.dtype) == ((5, 33), torch.bfloat16)
    assert any(c.use == "bench" for c in op.cases) and subject.ladder.names == ("native",)
    for text, message in (
        ("reference = 3", "has no function `reference`"),
        ("def reference(x):\n    return 3", "returns no tensor"),
        ("def reference(x):\n    return unknown", "NameError"),
        ("1 / 0", r"spec.py:1: ZeroDivisionError"),
        ("def reference(x):\n    return x\ncases = []", "`cases` are empty"),
    ):
        path = tmp_path / "spec.py"
        path.write_text(text)
        with pytest.raises(UsageError, match=message):
            subject_of(path)
