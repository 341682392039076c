"""The evidence for a verdict, and the kind of failure that is reported first."""

from dataclasses import replace

import pytest
import torch

from kernelwright.cli.render import verdicts
from kernelwright.contract import case
from kernelwright.support.errors import UsageError
from kernelwright.workbench.judge.cases import Selection, size_of, with_larger_cases
from kernelwright.workbench.judge.judge import judge
from kernelwright.workbench.judge.judging import CannotJudge
from kernelwright.workbench.judge.spec import subject_of
from kernelwright.workbench.judge.verdict import CaseOutcome, Verdict
from support.judging import FOLDER, SMALL, USER, judged, only_native

LARGE = "4x66-f32-dim=-1-large"


@pytest.mark.long
def test_a_kernel_that_cannot_be_built_is_not_wrong(box):
    cases = [case((n, 33), torch.float32, dim=(-1,)) for n in (2, 3, 4, 5)]
    subject = only_native(*cases, of="sum")
    how = {"launch": FOLDER / "launch.py", "box": box, "describe": False}
    found = judge(f"{FOLDER / 'missing.cu'}:row_sum", subject, **how)
    assert (found.outcome, found.exit_code) == ("inconclusive", 3), found.smallest
    assert verdicts.headline(found).startswith("CANNOT BE JUDGED HERE: CompileError: missing.cu:2")
    assert len(found.unable) == 2 and sum(found.left_out.values()) == 2


def test_inputs_of_one_element_are_not_enough(box):
    sizes = [case((n,), torch.float32, dim=-1) for n in (1, 40, 50)]
    verdict = judge(f"{USER}:only_one_element", only_native(*sizes), box=box, describe=False)
    assert (verdict.outcome, verdict.exit_code) == ("inconclusive", 3)
    assert verdict.shortage == "it ran only on inputs of at most 2 elements"
    assert "not enough evidence: it ran only on inputs" in verdicts.headline(verdict)


def test_size_is_counted_in_bytes_and_not_as_a_product_of_dimensions(tmp_path):
    (tmp_path / "product.py").write_text(
        "import torch\nfrom kernelwright.contract.inputs import tensor\n"
        "def reference(a, b):\n    return a @ b\n"
        "def inputs(c, device):\n    m, n, k = c.shape\n"
        "    return {'a': tensor(c, 'a', device, shape=(m, k)),\n"
        "            'b': tensor(c, 'b', device, shape=(k, n))}\n"
        "cases = [(256, 256, 256)]\ndtypes = (torch.float32,)\n"
    )
    product = subject_of(tmp_path / "product.py")
    (square,) = product.operator.cases
    assert size_of(product, square)[0] == 3 * 256**2 * 4
    assert Selection(product, {}, torch.device("cpu"), ()).left_out(square) is None


@pytest.mark.parametrize("name", ["softmax", "gelu", "cross_entropy"])
def test_many_rows_and_columns_are_tried_without_a_gpu(name):
    subject = with_larger_cases(subject_of(name))
    cpu = Selection(subject, {}, torch.device("cpu"), ())
    shapes = [c.shape for c in subject.operator.cases if cpu.left_out(c) is None]
    for what, sizes in (
        ("rows", {s[0] for s in shapes if s}),
        ("columns", {s[-1] for s in shapes if s}),
    ):
        many = {n for n in sizes if n > (4096 if what == "rows" else 1024)}
        assert any(n % 16 == 0 for n in many) and any(n % 2 for n in many), (what, sizes)


@pytest.mark.skipif(torch.cuda.is_available(), reason="the emulator's checks are for CPUs")
@pytest.mark.parametrize(
    ("kernel", "words"),
    [
        ("row_sum_without_a_barrier", "races: rows.cu:27: thread"),
        ("row_sum_past_the_end", "bounds: rows.cu:38: thread 0 of block 0 reads"),
        ("row_sum", ""),
    ],
)
def test_a_race_is_the_headline_with_its_line(kernel, words, box):
    subject = only_native("1-f32-dim=-1", "5x33-f32-dim=-1", "4x1000-f32-dim=-1", of="sum")
    how = {"launch": FOLDER / "launch.py", "box": box, "describe": False}
    found = judge(f"{FOLDER / 'rows.cu'}:{kernel}", subject, **how)
    if not words:
        assert found.outcome == "right", found.smallest
        assert found.properties()[0][1].startswith("none, by the emulator's checks")
        return
    assert found.smallest.check == "races and bounds", found.smallest
    assert found.smallest.why.startswith(words)


# refusals


def test_a_refusal_by_value_is_wrong(box):
    found = judged("refuses_large_values", box, cases=(SMALL, LARGE))
    assert (found.outcome, found.smallest.check) == ("wrong", "refusal")
    assert "but normal values of the same shape" in found.smallest.why
    assert judged("picky", box, cases=(SMALL, "5x33-f16-dim=-1")).outcome == "right"


def test_a_refusal_after_the_first_call_is_wrong(box):
    found = judged("RefusesTheSecond", box, make=True).smallest
    assert found.check == "refusal" and "but other values" in found.why


def test_a_refused_shape_between_two_calls_is_no_refusal_of_theirs(box):
    """The other shape that is called in between is one that the kernel accepts."""
    found = judged("narrow", box, cases=(SMALL, "4x1000-f32-dim=-1"))
    assert (found.outcome, len(found.refused)) == ("right", 1), found.smallest


# numerics, edge cases, layout


def test_layout_alone_is_a_note(box):
    found = judged("transposed", box)
    assert (found.outcome, found.exit_code) == ("right", 0)
    assert found.passed[0].layout == "y's strides are (1, 5), should be (33, 1)"
    assert any(line.startswith("layout: on 1 input (a note") for line in verdicts.further(found))
    strict = judged("transposed", box, strict=True)
    assert (strict.exit_code, strict.smallest.check) == (1, "layout")
    assert "--strict" in strict.smallest.command


def test_raising_on_empty_rows_is_an_edge_case(box):
    cases = (SMALL, LARGE, "3x0-f32-dim=-1")
    target = f"{USER}:several_kernels"
    found = judged("several_kernels", box, cases=cases)
    assert (found.outcome, len(found.edges)) == ("right", 1), target
    assert "it raises an exception on 1 without elements" in verdicts.headline(found)
    strict = judged("several_kernels", box, cases=cases, strict=True)
    assert (strict.exit_code, strict.smallest.kind) == (1, "edge case")


def test_the_worst_kind_comes_first(box):
    found = judged("without_the_maximum", box, cases=(SMALL, LARGE), strict=True)
    assert [o.kind for o in found.failures] == ["special", "layout"]
    assert found.smallest.case == LARGE and "NaN" in found.smallest.why
    assert "failures by kind: NaN and infinity 1 input, layout 1 input" in verdicts.further(found)


def test_a_kernel_that_is_wrong_after_forty_calls_of_a_shape(box):
    """As docs/judge.md states, a shape with four layouts is called more than 40 times."""
    cases = [f"6x40-f32-dim=-1-{x}" for x in ("sliced", "permuted", "offset", "expanded")]
    found = judged("WrongAfterFortyCalls", box, make=True, cases=cases)
    assert found.outcome == "wrong" and not found.passed, found


# Triton's interpreter, results that alias, dimensions, launch files


TRITON = FOLDER / "accesses.py"
needs_cpu = pytest.mark.skipif(
    torch.cuda.is_available(), reason="the emulator's checks are for CPUs"
)


@needs_cpu
@pytest.mark.parametrize(
    ("kernel", "why"),
    [
        ("unmasked", "reads x_ptr[165]"),
        ("total_without_an_atomic", "both write an element of y_ptr"),
        ("total", ""),
    ],
)
def test_accesses_of_a_triton_kernel(kernel, why, box):
    found = judge(f"{TRITON}:{kernel}", TRITON, cases=["5x33-f32"], box=box, describe=False)
    if not why:
        assert found.outcome == "right", found.smallest
        return
    assert found.smallest.check == "races and bounds" and why in found.smallest.why
    assert found.smallest.why.startswith("accesses.py:"), found.smallest


@pytest.mark.long
def test_a_view_of_an_argument_is_no_result(box, tmp_path):
    (tmp_path / "view.py").write_text("def view(x, dims):\n    return x.permute(dims)\n")
    subject = subject_of("permute_copy")
    case_ = next(c for c in subject.operator.cases if c.use == "verify" and c.numel > 32)
    target = f"{tmp_path / 'view.py'}:view"
    found = judge(target, "permute_copy", cases=[case_.id], box=box, describe=False)
    assert found.smallest.check == "results apart", found.smallest


@pytest.mark.long
def test_dimensions_are_counted_from_both_ends(box, tmp_path):
    (tmp_path / "mine.py").write_text(
        "def of_the_last(x, dim):\n"
        "    return x.softmax(dim if dim < 0 else -1)\n"
        "def of_three(x, dim):\n"
        "    return x.softmax(-1 if x.ndim == 4 and dim == 1 else dim)\n"
    )
    subject = with_larger_cases(subject_of("softmax"))
    ids = [c.id for c in subject.operator.cases if c.shape in ((5, 33), (2, 5, 33, 3))]
    ids = [i for i in ids if "f32" in i]
    for name in ("of_the_last", "of_three"):
        how = {"cases": ids, "box": box, "describe": False}
        found = judge(f"{tmp_path / 'mine.py'}:{name}", subject, **how)
        assert (found.outcome, found.smallest.check) == ("wrong", "value"), name
        assert "dim=-" not in found.smallest.case


def test_an_undefined_name_in_a_launch_file_is_its_error(box, tmp_path):
    launch = tmp_path / "launch.py"
    launch.write_text("def launch(x, y):\n    return torch.float32\n")
    with pytest.raises(UsageError, match=r"--launch: .*launch\.py:2: NameError: name 'torch'"):
        judge(
            f"{FOLDER / 'rows.cu'}:row_sum", only_native("5x33-f32-dim=-1", of="sum"),
            launch=launch, box=box, describe=False,
        )  # fmt: skip


def test_the_headline_is_the_case_that_fails_itself():
    """Not one after which a call of that case failed."""
    blank = CaseOutcome(
        "a", "wrong", "another shape", "then b: ...", (), 10, None, "", kind="special"
    )
    own = replace(blank, case="b", check="value", why="y: ...", numel=100)
    verdict = Verdict("f", "softmax", "softmax", "cpu", 0, (blank, own), {}, {}, {}, (), "")
    assert verdict.smallest is own


def test_an_extension_that_needs_nvcc_is_told_how_else(box, tmp_path):
    (tmp_path / "inline.py").write_text(
        "raise OSError('CUDA_HOME environment variable is not set. Please set it.')\n"
    )
    with pytest.raises(CannotJudge, match=r"write their source to a \.cu"):
        judge(f"{tmp_path / 'inline.py'}:f", "relu", box=box)
