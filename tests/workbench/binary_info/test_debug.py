"""debug: scripted sessions in pdb and gdb."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import kernelwright
from kernelwright import emulator
from kernelwright.dispatch import ladder
from kernelwright.support.errors import ToolchainError
from kernelwright.workbench.binary_info import debug

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(kernelwright.__file__).parents[1])}
here_it_compiles = pytest.mark.skipif(
    torch.cuda.is_available(), reason="a GPU is here: nothing is interpreted"
)


def session(name, *commands):
    """The output of a session with these commands, including prompts."""
    done = subprocess.run(
        [sys.executable, "-m", "kernelwright", "debug", name],
        input="\n".join(commands) + "\n",
        capture_output=True,
        text=True,
        timeout=120,
        env=ENVIRONMENT,
    )
    return done.returncode, done.stdout, done.stderr


@here_it_compiles
def test_triton_stops_at_the_kernels_first_line_and_shows_a_block():
    code, out, err = session("softmax.triton_row", "next", "next", "next", "p inside", "q")
    assert code == 0, err
    first, *_ = [line for line in out.splitlines() if line.startswith("-> ")]
    assert "tl.program_id(0)" in first
    assert "[ True,  True" in out and "Traceback" not in out + err


def test_torch_stops_in_the_formula():
    code, out, err = session("softmax.compiled", "p x.shape", "c")
    assert code == 0, err
    assert "torch_rungs.py" in out and "torch.Size([5, 33])" in out


@here_it_compiles
def test_numba_stops_in_the_first_thread_only():
    commands = ("p cuda.threadIdx.x", "next", "next", "p tid", "c")
    code, out, err = session("sum.numba_block", *commands)
    assert code == 0, err
    assert out.count("-> shared = cuda.shared.array") == 1 and "(Pdb) 0" in out


@pytest.mark.skipif(not shutil.which("gdb"), reason="no gdb on this machine")
@pytest.mark.skipif(bool(emulator.missing()), reason=str(emulator.missing()))
@pytest.mark.long
def test_cuda_stops_in_the_first_thread_and_any_thread_can_be_looked_at():
    source = (ladder("sum").folder / "cuda_strided.cu").read_text().splitlines()
    line = next(i for i, t in enumerate(source, 1) if "if (pair < blockDim.x)" in t)
    code, out, err = session(
        "sum.cuda_strided",
        "print threadIdx",
        "cuda threads",
        f"break cuda_strided.cu:{line} if threadIdx.x == 40",
        "continue",
        "print tid",
        "cuda threads",
        "cuda thread 3",
        "info locals",
        "print threadIdx.x",
        "cuda back",
        "print tid",
        "delete",
        "cuda go 70",
        "print threadIdx.x",
        "cuda thread 2000",
        "continue",
        "cuda where",
    )
    assert code == 0, err
    at_barrier = f"at cuda_strided.cu:{line + 1} (Barrier)"
    for told in (
        "hit Breakpoint 1, sum_strided<float, float>",
        "$1 = {x = 0, y = 0, z = 0}",
        "thread 0: runs\nthreads 1 to 255: has not started, or has ended",
        "$2 = 40",
        f"threads 0 to 39: waits {at_barrier}\nthread 40: runs",
        "thread (3, 0, 0) of block (0, 0, 0)",
        "pair = 6",
        "$3 = 3",
        "$4 = 40",
        "$5 = 70",
        "exited normally",
    ):
        assert told in out, out
    assert "name a thread X [Y Z] of a block of 256 x 1 x 1" in err
    assert "no kernel runs now" in err


@pytest.mark.long
@pytest.mark.skipif(not shutil.which("gdb"), reason="no gdb on this machine")
@pytest.mark.skipif(bool(emulator.missing()), reason=str(emulator.missing()))
def test_a_block_of_a_cluster_can_be_looked_at():
    source = (ladder("softmax").folder / "cuda_cluster.cu").read_text().splitlines()
    line = next(i for i, t in enumerate(source, 1) if "const kw::MaxSum row" in t)
    code, out, err = session(
        "softmax.cuda_cluster",
        f"break cuda_cluster.cu:{line} if blockIdx.x == 1",
        "continue",
        "cuda where",
        "print rank",
        "cuda thread 5",
        "delete",
        "continue",
    )
    assert code == 0, err
    for told in ("of block (1, 0, 0)", "$1 = 1", "thread (5, 0, 0) of block (1, 0, 0)", "exited"):
        assert told in out, out


@pytest.mark.long
@pytest.mark.skipif(not shutil.which("gdb"), reason="no gdb on this machine")
@pytest.mark.skipif(bool(emulator.missing()), reason=str(emulator.missing()))
def test_barriers_and_a_tile_of_a_hopper_rung_are_shown():
    source = (ladder("matmul").folder / "teaching" / "cuda_wgmma_tma.cu").read_text().splitlines()
    line = next(i for i, t in enumerate(source, 1) if "kw::store_directly" in t)
    code, out, err = session(
        "matmul.cuda_wgmma_tma",
        "cuda barriers",
        "cuda tile",
        f"break cuda_wgmma_tma.cu:{line} if threadIdx.x == 127",
        "continue",
        "cuda barriers",
        "cuda tile 60 4",
        "print d[2]",
        "print d[3]",
        "delete",
        "continue",
    )
    assert code == 0, err
    for told in (
        "this block has no mbarriers",
        "this thread's warp group has issued no product",
        "mbarrier at byte 0: phase 1, 1 of 1 arrivals and 0 bytes are missing",
        "D of m64n128k16, done",
        "exited normally",
    ):
        assert told in out, out
    # d[2] and d[3] of thread 127 are row 63, columns 6 and 7
    row = next(text for text in out.splitlines() if text.strip().startswith("row 63"))
    held = [re.search(rf"\${n} = (\S+)", out)[1] for n in (1, 2)]  # pyright: ignore
    assert [float(v) for v in row.split()[4:6]] == pytest.approx([float(v) for v in held], 1e-5)


def test_without_gdb_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr(debug.shutil, "which", lambda name: None)
    lad = ladder("sum")
    rung = lad.rung("cuda_strided")
    with pytest.raises(ToolchainError, match="needs gdb, which is not installed"):
        debug.gdb_command(lad, rung, debug.small_case(lad, rung))


def test_a_case_that_the_rung_does_not_take_is_refused():
    lad = ladder("sum")
    rung = lad.rung("cuda_strided")
    small = (c for c in lad.operator.cases if c.use == "verify" and c.numel)
    refused = next(c for c in small if debug._reason(lad, rung, c))
    with pytest.raises(ValueError, match=r"case: sum\.cuda_strided on"):
        debug.session(lad, rung, refused)
