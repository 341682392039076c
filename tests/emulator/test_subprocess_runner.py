"""Kernels that are not this package's run in a process of their own: what they give, what they
destroy."""

import json
import mmap
import os
import re
import subprocess
import sys

import pytest
import torch

import kernelwright.ops.every  # noqa: F401
from kernelwright import dispatch, emulator
from kernelwright.contract import CudaKernel, Launch, Operator, Plan, Pointers, TensorSpec, i32
from kernelwright.emulator import EmulationError, subprocess_runner
from kernelwright.toolchain import availability, cpu_executor, redzones
from kernelwright.workbench.exercise import exercise, files
from kernelwright.workbench.judge.judge import judge
from kernelwright.workbench.scaffold import scaffold
from support import contributing
from support.paths import FIXTURES

SOURCE = FIXTURES / "emulated" / "foreign.cu"
pytestmark = pytest.mark.skipif(
    availability.missing("cuda", "cpu") is not None or torch.cuda.is_available(),
    reason="a GPU runs kernels instead of the emulator",
)


def bound(name, args=("x", "y"), n=64, schema="(Tensor x) -> (Tensor y)", grid=1, **specs):
    """A kernel of foreign.cu as a function of the operator's arguments."""
    given = specs or {"x": TensorSpec.contiguous((n,), torch.float32)}
    op = Operator("k", schema, None, None, (), None, outputs=lambda **k: _results(schema, n))
    step = Launch(CudaKernel(SOURCE, name), (grid, 1, 1), (*args, i32(n)), (64, 1, 1))
    return cpu_executor.executor(Plan((step,)), op, given, ())


def line(text):
    """foreign.cu:24 for the line that holds `text`."""
    lines = SOURCE.read_text().splitlines()
    return f"foreign.cu:{1 + next(i for i, x in enumerate(lines) if text in x)}"


def _results(schema, n):
    fresh = schema.endswith("(Tensor y)")
    return (TensorSpec.contiguous((n,), torch.float32),) if fresh else ()


IN_PLACE = "(Tensor x, Tensor(a!) y) -> ()"


def pair(x, y):
    return {"x": TensorSpec.of(x), "y": TensorSpec.of(y)}


def at_the_start_of_a_page(n):
    whole = torch.zeros(n + mmap.PAGESIZE // 4)
    return whole[-whole.data_ptr() % mmap.PAGESIZE // 4 :][:n]


# what comes back


def test_results_are_those_of_the_kernel():
    x = torch.rand(64)
    run = bound("reverse")
    for _ in range(2):
        assert torch.equal(run(x), x.flip(0))


def test_arguments_that_are_changed_and_share_memory(capfd):
    base = torch.arange(128.0)
    want = base.clone()
    x = base[:32]
    bound("add", schema=IN_PLACE, n=32, **pair(x, x))(x, x)
    want[:32] *= 2
    assert torch.equal(base, want)
    x, y = base[:64], base[64:]
    bound("add", schema=IN_PLACE, n=64, **pair(x, y))(x, y)
    want[64:] += want[:64]
    assert torch.equal(base, want)
    assert "added 32\nadded 64\n" in capfd.readouterr().out


def test_lists_are_reached_through_their_addresses():
    xs, ys = ([torch.rand(64) for _ in range(3)] for _ in range(2))
    want = [x + y for x, y in zip(xs, ys, strict=True)]
    listed = {n: [TensorSpec.of(t) for t in some] for n, some in (("xs", xs), ("ys", ys))}
    schema = "(Tensor[] xs, Tensor(a!)[] ys) -> ()"
    bound("add_lists", (Pointers(("xs", "ys")),), schema=schema, grid=3, **listed)(xs, ys)
    assert all(map(torch.equal, ys, want))


def test_a_guard_sees_what_is_written_beside_a_result():
    with redzones.guarded() as guard:
        bound("writes_behind", ("y",))(torch.rand(64))
    assert guard.check() == "y: 4 bytes written after its end, the nearest 4 bytes away"


def test_more_memory_than_there_was(monkeypatch):
    monkeypatch.setattr(subprocess_runner, "LEAST_BYTES", 1)
    monkeypatch.setattr(subprocess_runner, "_subprocesses", {})
    for n in (16, 64, 32):
        x = torch.rand(300_000)[:n]  # what is around it comes along
        assert torch.equal(bound("reverse", n=n)(x), x.flip(0))


# what is destroyed


def test_an_address_that_is_none_is_named_with_its_line():
    with pytest.raises(EmulationError, match=f"touches the address .*{line('x[n + (1 << 20)]')}"):
        bound("reads_far")(torch.rand(64))


def test_a_crash_names_kernel_signal_and_line_and_is_over():
    x = at_the_start_of_a_page(64)  # what is written lies on its page, which is mapped
    run = bound("destroys", ("y",), schema=IN_PLACE, **pair(x, x))
    with pytest.raises(emulator.Crashed) as caught:
        run(torch.rand(64), x)
    said = str(caught.value)
    ended = f"destroys: the process that ran it was killed by SIGILL; {line('y[n + 16]')}: "
    assert said.startswith(ended)
    assert "writes 4 bytes" in said and "y, which has 256" in said
    assert not x.any()
    assert torch.equal(bound("reverse")(x + 1), x + 1)


def test_a_crash_of_no_known_line():
    with pytest.raises(emulator.Crashed) as caught:
        bound("ends", ("y",))(torch.rand(64))
    assert str(caught.value) == "ends: the process that ran it was killed by SIGILL"


def test_a_process_that_was_forked_has_a_process_of_its_own():
    x = torch.rand(64)
    run = bound("reverse")
    run(x)
    mine = subprocess_runner._subprocesses[os.getpid()]
    child = os.fork()
    if not child:
        try:
            right = (
                torch.equal(run(x), x.flip(0))
                and subprocess_runner._subprocesses[os.getpid()] is not mine
            )
            os._exit(0 if right else 1)
        finally:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    assert torch.equal(run(x), x.flip(0)) and mine.running


def test_our_own_kernels_stay_here(monkeypatch):
    monkeypatch.setattr(subprocess_runner, "shared_copies", None)  # calling it would fail
    x = torch.rand(4, 30)
    run = dispatch.launcher(dispatch.ladder("softmax"), {"x": x, "dim": -1}, "cuda_warp")
    torch.testing.assert_close(run(x, -1), torch.softmax(x, -1))


# commands


def destructive(text, before):
    """A kernel that ends its process, behind a write out of bounds, where it is asked for more than
    some elements."""
    assert before in text
    wrong = "  if (n > 40 && i == 0) {\n    y[n + 99] = T(1);\n    __builtin_trap();\n  }\n"
    return text.replace(before, wrong + before, 1)


@pytest.mark.long
def test_verify_says_which_kernel_of_a_folder_crashes_and_goes_on(tmp_path):
    scaffold.new("scale", tmp_path)
    folder = tmp_path / "scale"
    contributing.follow(folder)
    source = folder / "cuda_thread.cu"
    source.write_text(destructive(source.read_text(), "  if (i < n) y[i]"))
    command = [sys.executable, "-m", "kernelwright", "verify", str(folder), "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    rows = {(r["operator"], r["rung"]): r for r in json.loads(done.stdout)["rows"]}
    for operator in ("scale", "scale.backward"):  # one kernel serves both
        crashed = rows.pop((operator, "cuda_thread"))
        assert crashed["outcome"] == "error"
        assert "the process that ran it was killed by SIGILL; cuda_thread.cu:" in crashed["why"]
    assert {r["outcome"] for r in rows.values()} == {"pass"}


LAUNCH = """
def launch(x, dim, y):
    return {"grid": 1, "block": 64, "args": ["y", int(y.numel())]}
"""


@pytest.mark.long
def test_judge_says_which_kernel_crashes_and_where(tmp_path):
    (tmp_path / "launch.py").write_text(LAUNCH)
    verdict = judge(
        f"{SOURCE}:destroys", "sum", launch=tmp_path / "launch.py",
        cases=["5x33-f32-dim=-1", "7-f32-dim=-1"], describe=False,
    )  # fmt: skip
    assert verdict.exit_code == 1
    watched, crashed = verdict.failures  # the checks of memory accesses run on inputs of some size
    assert watched.why.startswith(f"bounds: {line('y[n + 16]')}: ")
    place = line("y[n + 16]")
    ended = f"the process that ran it was killed by SIGILL; {place}: "
    beside = f"thread .* which is not mapped, at {place}"  # if the result ends with its page
    assert re.search(f"destroys: ({ended}|{beside})", str(crashed))


def test_an_exercise_says_where_it_crashes(tmp_path):
    of = files.source(exercise.named("gelu.cuda_thread"))
    text = files.text(of, solved=True)
    (tmp_path / of.file_name).write_text(destructive(text, "  if (i < n)"))
    outcome = exercise.check(exercise.named("gelu.cuda_thread"), tmp_path)
    assert outcome["outcome"] == "error"
    assert f"was killed by SIGILL; {of.file_name}:" in outcome["why"]
