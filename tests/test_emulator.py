"""CUDA C++ on the CPU: each primitive against a model in Python, and what goes wrong, in words."""

import ctypes
import math
import os
import random
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path

import pytest
import torch

import kernelwright as kw
from kernelwright.contract import CudaKernel, Launch, Scalar, i32, i64
from kernelwright.dispatch import ladder
from kernelwright.toolchain import CompileError, ToolchainError, emulator, nvrtc
from kernelwright.toolchain.emulator import (
    EmulationError,
    Schedule,
    build,
    compiler,
    launch,
    messages,
)
from kernelwright.workbench import kernels, verify

PRIMITIVES = Path(__file__).parent / "emulated" / "primitives.cu"
no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU to run on")
pytestmark = pytest.mark.skipif(emulator.missing() is not None, reason=str(emulator.missing()))


def run(name, *args, grid=1, block=32, shared=0, source=PRIMITIVES, kind="fast", **how):
    """Launch a kernel of primitives.cu on tensors and Scalars."""
    triple = [(*s, 1, 1)[:3] if isinstance(s, tuple) else (s, 1, 1) for s in (grid, block)]
    names = tuple(a if isinstance(a, Scalar) else "x" for a in args)
    step = Launch(CudaKernel(source, name), triple[0], names, triple[1], shared)
    kernel = launch.bound(step, kind)
    observer = how.pop("observer", None)
    launch.run(kernel, step, args, Schedule(**how), observer)


@pytest.fixture(scope="module", autouse=True)
def built():
    """Most kernels of primitives.cu, in one library."""
    plain = """indices shared_memory block_votes votes diverged ended active integer_atomics
        add_pairs pairs bits maths hints groups hand_over chain last_one says asserts stops
        waits_for_ever loops_for_ever reaches_nowhere divides misaligned not_in_its_mask
        overflows_its_stack scales meets"""
    names = plain.split()
    for t in ("int", "float", "double", "long long", "__half", "__nv_bfloat16"):
        names.append(f"shuffles<{t}>")
    for t in ("int", "unsigned", "long long", "unsigned long long", "float", "double"):
        names.append(f"atomics<{t}>")
    for t in ("__half", "__nv_bfloat16"):
        names += [f"{k}<{t}>" for k in ("arithmetic", "to_and_from", "from_double")]
        names.append(f"add_atomically<{t}>")
    build.ensure([CudaKernel(PRIMITIVES, n) for n in names])


def ints(*shape):
    return torch.zeros(shape, dtype=torch.int32)


# ---- where a thread is, and what a block shares


@pytest.mark.parametrize(("grid", "block"), [((3, 2, 2), (5, 3, 2)), ((7,), (1024,)), ((1,), (1,))])
@pytest.mark.parametrize("workers", [1, 2])
def test_indices(grid, block, workers):
    blocks, threads = math.prod(grid), math.prod(block)
    out = ints(blocks, threads)
    run("indices", out, grid=grid, block=block, workers=workers)
    want = torch.arange(blocks)[:, None] * 10000 + torch.arange(threads)
    assert torch.equal(out, want.int())


def test_static_and_dynamic_shared_memory_under_two_names():
    x, aligned = torch.arange(64.0), ints(1)
    run("shared_memory", x, aligned, block=64, shared=256)
    assert torch.equal(x, torch.arange(64.0).flip(0) + 2)
    assert aligned.item() == 1


@pytest.mark.parametrize("ones", [0, 1, 50, 99, 100])
def test_barriers_that_count(ones):
    values, out = (torch.arange(100) < ones).int(), ints(3, 100)
    run("block_votes", values, out, block=100)
    assert out[0].tolist() == [ones] * 100
    assert [bool(v) for v in out[1].tolist()] == [ones == 100] * 100
    assert [bool(v) for v in out[2].tolist()] == [ones > 0] * 100


# ---- warps


def shuffled(values, mask, by, width, how):
    """What each lane of the mask reads; None where the lane it reads is not in the mask."""
    out = []
    for lane in range(32):
        first, end = lane // width * width, lane // width * width + width
        source = {
            "idx": first + by % width,
            "up": lane - by if lane - by >= first else lane,
            "down": lane + by if lane + by < end else lane,
            "xor": lane ^ by if lane ^ by < end else lane,
        }[how]
        out.append(values[source] if mask >> source & 1 else None)
    return out


CTYPES = {
    "int": torch.int32,
    "long long": torch.int64,
    "float": torch.float32,
    "double": torch.float64,
    "__half": torch.float16,
    "__nv_bfloat16": torch.bfloat16,
}


@pytest.mark.parametrize("ctype", CTYPES)
@pytest.mark.parametrize(("mask", "by", "width"), [(-1, 1, 32), (-1, 5, 8), (0xF0F00FF, 3, 16)])
def test_shuffles(ctype, mask, by, width):
    values = torch.arange(32).to(CTYPES[ctype]) + 1
    out = torch.zeros(4, 32, dtype=CTYPES[ctype])
    run(f"shuffles<{ctype}>", values, out, i32(mask), i32(by), i32(width))
    for row, how in zip(out.tolist(), ("idx", "up", "down", "xor"), strict=True):
        want = shuffled(values.tolist(), mask & 0xFFFFFFFF, by, width, how)
        for lane in range(32):
            if mask >> lane & 1 and want[lane] is not None:
                assert row[lane] == want[lane], (how, lane)


@pytest.mark.parametrize("mask", [0xFFFFFFFF, 0x0000FF0F])
def test_votes_matches_and_reductions(mask):
    signed = mask - 2**32 if mask >= 2**31 else mask
    values = torch.tensor([random.Random(7 + i).choice([0, 0, 3, -5]) for i in range(32)]).int()
    out = ints(10, 32)
    run("votes", values, out, i32(signed))
    lanes = [i for i in range(32) if mask >> i & 1]
    v = {i: values[i].item() for i in lanes}
    unsigned = {i: x % 2**32 for i, x in v.items()}
    xor = 0
    for x in unsigned.values():
        xor ^= x
    got = [[x % 2**32 for x in row] for row in out.tolist()]
    for i in lanes:
        assert got[0][i] == sum(1 << j for j in lanes if v[j])
        assert (got[1][i], got[2][i]) == (any(v.values()), all(v.values()))
        assert got[3][i] == sum(1 << j for j in lanes if v[j] == v[i])
        assert (got[4][i], got[5][i]) == (0, 0)
        assert got[6][i] == sum(v.values()) % 2**32
        assert got[7][i] == min(v.values()) % 2**32
        assert got[8][i] == max(unsigned.values())
        assert got[9][i] == xor
    run("votes", torch.full((32,), 9).int(), out, i32(signed))
    assert out[4][lanes[0]].item() % 2**32 == mask
    assert out[5][lanes[0]].item() == 1


@pytest.mark.parametrize("seed", range(4))
def test_halves_of_a_warp_that_go_different_ways(seed):
    out = ints(32)
    run("diverged", out, seed=seed)
    want = [(i + 5) % 20 if i < 20 else 31 for i in range(32)]
    assert out.tolist() == [w + 2000 for w in want]


@pytest.mark.parametrize("seed", range(3))
def test_lanes_that_have_ended_are_not_waited_for(seed):
    out = ints(96)
    run("ended", out, block=96, seed=seed)
    for i in range(96):
        lane = i % 32
        assert out[i].item() == (0 if lane >= 20 else 2 * i - 1 if lane else 2 * i)


def test_active_lanes_are_those_at_the_same_place():
    out = ints(32)
    run("active", out)
    thirds = sum(1 << i for i in range(0, 32, 3))
    assert [x % 2**32 for x in out.tolist()] == [thirds] * 32


def test_cooperative_groups():
    values, out = torch.arange(64).int() * 3 % 11, ints(4, 64)
    run("groups", values, out, block=64)
    v = values.tolist()
    assert out[0].tolist() == [sum(v[i // 8 * 8 : i // 8 * 8 + 8]) for i in range(64)]
    assert out[1].tolist() == [v[i ^ 4] for i in range(64)]
    assert out[2].tolist() == [i // 8 * 100 + i % 8 for i in range(64)]
    for warp in (0, 32):
        odd = [i for i in range(warp, warp + 32) if v[i] % 2]
        for rank, i in enumerate(odd):
            assert out[3][i].item() == v[odd[0]] * 100 + rank
        assert all(out[3][i].item() == -1 for i in range(warp, warp + 32) if i not in odd)


# ---- atomics


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize(
    "ctype", ["int", "unsigned", "long long", "unsigned long long", "float", "double"]
)
def test_atomics(ctype, workers):
    signed = "unsigned" not in ctype
    dtype = {"unsigned": torch.int32, "unsigned long long": torch.int64}.get(ctype)
    dtype = dtype or CTYPES[ctype]
    values = torch.arange(1000) % 37 + (-7 if signed else 1)
    cells = torch.tensor([0, 99, -99 if signed else 0, 0, 0]).to(dtype)
    run(f"atomics<{ctype}>", cells, values.to(dtype), i64(1000), grid=4, block=256, workers=workers)
    assert cells.tolist() == [
        values.sum(), values.min(), values.max(), values.sum(), values[0]
    ]  # fmt: skip


def test_atomics_on_integers():
    cells = torch.tensor([100, 0, 0, -1, 0, 0]).int()
    run("integer_atomics", cells, i32(31), block=31)
    xor = 0
    for i in range(31):
        xor ^= i
    assert cells.tolist() == [69, 31 % 7, 7 - 31 % 7 if 31 % 7 else 0, -(2**31), 127, xor]


@pytest.mark.parametrize("ctype", ["__half", "__nv_bfloat16"])
def test_atomics_on_16_bits(ctype):
    cells = torch.zeros(2, dtype=CTYPES[ctype])
    bits = cells.new_tensor([0.5]).view(torch.int16).item()
    run(f"add_atomically<{ctype}>", cells, i32(bits), grid=3, block=64)
    assert cells.tolist() == [96, 0]


def test_atomics_on_pairs():
    out = torch.zeros(4)
    run("add_pairs", out, block=100)
    assert out.tolist() == [100, 200, 100, 200]


# ---- numbers of 16 bits


def half_samples(dtype, n=400):
    """Pairs of values with ordinary, tiny, huge and special ones among them."""
    raw = torch.randint(-(2**15), 2**15, (n,), generator=torch.Generator().manual_seed(5))
    values = raw.to(torch.int16).view(dtype)
    values[:8] = torch.tensor([0.0, -0.0, 1, -1, math.inf, -math.inf, math.nan, 2**-14]).to(dtype)
    return values


def same(got, want):
    both = got.isnan() & want.isnan()
    integers = {2: torch.int16, 4: torch.int32}[got.itemsize]
    return bool(((got.view(integers) == want.view(integers)) | both).all())


def nearest(x, dtype):
    """A Fraction rounded to nearest even in `dtype`, with the bits of the two neighbours."""
    near = torch.tensor(float(x), dtype=torch.float64).to(dtype)
    bits = near.view(torch.int16).item() & 0x7FFF
    top = 0x7C00 if dtype == torch.float16 else 0x7F80
    best = []
    for b in range(max(bits - 1, 0), min(bits + 1, top) + 1):
        value = torch.tensor(b, dtype=torch.int16).view(dtype).double().item()
        if math.isinf(value):  # where rounding to infinity begins: one ulp beyond the largest
            largest, before = (
                torch.tensor(t, dtype=torch.int16).view(dtype).double().item()
                for t in (top - 1, top - 2)
            )
            value = largest + (largest - before)
        best.append((abs(abs(x) - Fraction(value)), b & 1, b))
    return min(best)[2]


@pytest.mark.parametrize("ctype", ["__half", "__nv_bfloat16"])
def test_arithmetic_rounds_once(ctype):
    dtype = CTYPES[ctype]
    a, b, c = (half_samples(dtype).roll(k) for k in (0, 3, 11))
    n = len(a)
    out = torch.zeros(7, n, dtype=dtype)
    run(f"arithmetic<{ctype}>", a, b, c, out, i32(n))
    assert same(out[0], a + b)
    assert same(out[1], a - b)
    assert same(out[2], a * b)
    assert same(out[3], a / b)
    larger = torch.maximum(a, b).where(~a.isnan(), b).where(~b.isnan(), a)
    torch.testing.assert_close(out[5], larger, rtol=0, atol=0, equal_nan=True)
    torch.testing.assert_close(out[6], torch.minimum(a, b), rtol=0, atol=0, equal_nan=True)
    checked = 0
    for x, y, z, got in zip(a.tolist(), b.tolist(), c.tolist(), out[4], strict=True):
        if all(map(math.isfinite, (x, y, z))):
            exact = Fraction(x) * Fraction(y) + Fraction(z)
            if exact:
                assert got.view(torch.int16).item() & 0x7FFF == nearest(exact, dtype), (x, y, z)
                checked += 1
    assert checked > n / 2


@pytest.mark.parametrize("ctype", ["__half", "__nv_bfloat16"])
def test_conversions(ctype):
    dtype = CTYPES[ctype]
    every = torch.arange(-(2**15), 2**15).to(torch.int16).view(dtype)
    wide = torch.empty(len(every))
    bits = torch.randint(-(2**31), 2**31, (50_000,), generator=torch.Generator().manual_seed(1))
    halfway = (every[1:].float() + every[:-1].float()) / 2
    from_ = torch.cat([bits.int().view(torch.float32), halfway])
    out = torch.empty(len(from_), dtype=dtype)
    run(f"to_and_from<{ctype}>", every, wide, from_, out, i32(len(every)), i32(len(from_)))
    assert same(wide, every.float())
    assert same(out, from_.to(dtype))
    # once from double too, where the way by float would round twice
    doubles = halfway.double() * (1 + 2.0**-40)
    run(f"from_double<{ctype}>", doubles, out, i32(len(doubles)))
    finite = [i for i in range(0, len(doubles), 97) if math.isfinite(doubles[i])]
    for i in finite:
        got = out[i].view(torch.int16).item() & 0x7FFF
        assert got == nearest(Fraction(doubles[i].item()), dtype), doubles[i]


def test_pairs():
    x = torch.arange(64).half()
    out = torch.empty_like(x)
    run("pairs", x, out)
    swapped = x.view(32, 2).flip(1).reshape(-1)
    assert torch.equal(out, (2 * x + swapped) / 2)


# ---- single numbers


def test_bits():
    numbers = [0, 1, 0x80000000, 0xFFFFFFFF, *(random.Random(3).sample(range(2**32), 28))]
    values = torch.tensor([x - 2**32 if x >= 2**31 else x for x in numbers]).int()
    out = ints(9, 32)
    run("bits", values, out, i32(32))
    got = [[x % 2**32 for x in row] for row in out.tolist()]
    for i, x in enumerate(numbers):
        y = numbers[(i + 1) % 32]
        eight = (y << 32 | x).to_bytes(8, "little")
        perm = bytes([eight[1], eight[2], 255 if eight[3] & 128 else 0, eight[6]])
        assert [row[i] for row in got] == [
            x.bit_count(),
            32 - x.bit_length(),
            (x & -x).bit_length(),
            int(f"{x:032b}"[::-1], 2),
            int.from_bytes(perm, "little"),
            x * y >> 32,
            (y << 32 | x) << 7 >> 32 & 0xFFFFFFFF,
            x,
            x,
        ]


def test_maths():
    x = torch.linspace(-5, 5, 64) + 0.01
    out = torch.empty(9, 64)
    run("maths", x, out, i32(64))
    want = [x.exp(), x.abs().rsqrt(), 1 / x, x.clamp(0, 1), x.exp2(), x * x + 1, x.round()]
    want += [x.clamp(min=0) + 2, 1 / x + 0.5]
    for got, w in zip(out, want, strict=True):
        torch.testing.assert_close(got, w, rtol=1e-6, atol=1e-6)


def test_hints_constants_and_globals():
    x, out = torch.rand(32, 4), torch.empty(32, 4)
    for launched in (1, 2):
        run("hints", x, out, i32(3))
        want = x.clone()
        want[:, 0] += x[:, 0] + x[:, 1]
        want[:, 3] += 45
        want[:, 2] = launched
        torch.testing.assert_close(out, want)


def test_printf(capfd):
    run("says", i32(2))
    assert capfd.readouterr().out == "thread 0 of a block\nthread 1 of a block\n"


# ---- threads that wait for each other


def test_threads_of_a_block_that_wait_in_loops():
    turn, out = ints(1), ints(3, 40)
    run("hand_over", turn, out, block=40, patience=5)
    assert out.flatten().tolist() == list(range(120))


@pytest.mark.parametrize("workers", [1, 2])
def test_blocks_that_wait_for_the_one_before(workers):
    flags, out = ints(50), ints(50)
    run("chain", flags, out, grid=50, block=1, workers=workers)
    assert out.tolist() == list(range(1, 51))


def test_an_order_by_numbers_or_drawn_from_a_seed():
    def last(seed):
        out = ints(20)
        run("last_one", out, grid=20, block=64, seed=seed, workers=1)
        return out.tolist()

    assert last(0) == [63] * 20
    assert last(1) == last(1)
    assert last(1) != last(2)
    assert len(set(last(1))) > 5


# ---- what goes wrong


def line(text):
    """primitives.cu:17 for the line that holds `text`."""
    lines = PRIMITIVES.read_text().splitlines()
    return f"primitives.cu:{1 + next(i for i, x in enumerate(lines) if text in x)}"


def failure(name, *args, **how):
    with pytest.raises(EmulationError) as caught:
        run(name, *args, **how)
    return str(caught.value)


def test_an_assertion_names_thread_and_line():
    said = failure("asserts", torch.arange(8).int(), block=8)
    assert "asserts: thread (5, 0, 0) of block (0, 0, 0)" in said
    assert f"assertion `in[threadIdx.x] < 5` failed at {line('assert(')}" in said


def test_a_trap_names_thread_and_line():
    said = failure("stops", grid=3, block=(2, 2), workers=1)
    assert f"thread (0, 1, 0) of block (0, 0, 0): __trap() was called at {line('__trap')}" in said


def test_a_deadlock_says_who_waits_where():
    said = failure("waits_for_ever", block=32)
    assert "block (0, 0, 0) waits for ever:" in said
    assert (
        f"threads 0 to 15 in __syncwarp for the lanes 0xffffffff at {line('__syncwarp();')}"[:58]
        in said
    )
    assert "threads 16 to 31 in __syncthreads at primitives.cu:" in said


def test_an_endless_loop_ends():
    said = failure("loops_for_ever", ints(1), block=2, patience=0.2)
    assert "thread (0, 0, 0) of block (0, 0, 0) has been at" in said or "thread (1, 0, 0)" in said
    assert line("while (*x == 0)") in said


def test_an_address_that_is_none():
    said = failure("reaches_nowhere", ints(1))
    assert "thread (3, 0, 0) of block (0, 0, 0) touches" in said
    assert line("1ll << 44") in said


def test_division_by_zero():
    said = failure("divides", ints(2), block=1)
    assert f"divides an integer by zero at {line('void divides')}" in said


def test_a_misaligned_vector():
    said = failure("misaligned", torch.zeros(16), block=1)
    assert "touches a misaligned address at primitives.cu:" in said


def test_a_lane_outside_of_its_mask():
    said = failure("not_in_its_mask", block=32)
    assert "thread (16, 0, 0)" in said
    assert "lane 16, which its own mask 0x0000ffff does not name, in a shuffle" in said


def test_a_stack_that_is_too_small():
    said = failure("overflows_its_stack", ints(2), block=1)
    assert "uses more than its stack of 256 KiB" in said


def test_the_next_launch_after_a_failure_works():
    failure("waits_for_ever", block=32)
    test_lanes_that_have_ended_are_not_waited_for(0)


def refused(tmp_path, text, name="k"):
    source = tmp_path / "rung.cu"
    source.write_text(text)
    with pytest.raises(CompileError) as caught:
        build.find(CudaKernel(source, name), "fast")
    return str(caught.value).splitlines()[0]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('__global__ void k() {\n  asm volatile("bar.sync 0;");\n}', "rung.cu:2: inline PTX"),
        ("#include <cub/cub.cuh>\n", "rung.cu:1: the emulator has no header <cub/cub.cuh>; it has"),
        (
            "\n__global__ void k() {\n  __wgmma_fence();\n}",
            "rung.cu:3: the emulator does not know __wgmma_fence",
        ),
        ("__global__ void k() {\n  int x = ;\n}", "rung.cu:2: expected primary-expression"),
        ("template <int N> __global__ void k() {}", "rung.cu, k: "),
    ],
)
def test_what_it_does_not_know_is_named_with_its_line(tmp_path, text, said):
    assert said in refused(tmp_path, text)


def test_arguments_that_are_not_the_kernels():
    step = Launch(CudaKernel(PRIMITIVES, "says"), (1, 1, 1), (i64(2),))
    with pytest.raises(ToolchainError, match=r"says takes \(i32\), but its plan passes \(i64\)"):
        launch.bound(step)


def test_blocks_and_shared_memory_beyond_any_gpu():
    kernel = CudaKernel(PRIMITIVES, "says")
    with pytest.raises(ToolchainError, match="a block of 2048 threads; 1024 are the most"):
        launch.bound(Launch(kernel, (1, 1, 1), (i32(2),), (1024, 2, 1)))
    with pytest.raises(ToolchainError, match="300000 bytes of dynamic shared memory"):
        launch.bound(Launch(kernel, (1, 1, 1), (i32(2),), shared=300_000))


def test_no_compiler(monkeypatch):
    compiler.command.cache_clear()
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert compiler.missing() == "CXX is no-such-compiler, and there is no such program"
    compiler.command.cache_clear()
    monkeypatch.delenv("CXX")
    monkeypatch.setenv("PATH", "")
    assert "install g++ or set CXX" in compiler.missing()
    compiler.command.cache_clear()


@pytest.mark.parametrize(("name", "bar"), [("meets", 4e6), ("scales", 20e6)])
def test_threads_a_second_on_two_cores(name, bar):
    n = 1_000_000
    x, y = torch.rand(n), torch.empty(n)

    def seconds():  # of a core: others may be at work on this machine
        start = time.process_time()
        run(name, x, y, i32(n), grid=n // 256 + 1, block=256, workers=2)
        return time.process_time() - start

    assert 2 * n / min(seconds() for _ in range(3)) > bar


# ---- builds


def test_a_debug_build_runs():
    out = ints(2, 40)
    run("indices", out, grid=2, block=40, kind="debug", workers=1, patience=0)
    assert out[1, 39].item() == 10039


OBSERVER = """
#include "runtime.h"
using namespace kw::emulator;
static long long seen[8];
static const void *places[64];
extern "C" {
long long *counts() { return seen; }
const void **where() { return places; }
static void access(Thread &, const void *, unsigned bytes, unsigned kind, const void *at) {
  if (seen[0] < 64) places[seen[0]] = at;
  seen[0] += kind == kRead, seen[1] += kind == kWrite;
  seen[2] += (kind & kAtomic) != 0, seen[3] += bytes;
}
static void barrier(Block &b) { seen[4] += b.threads[0].wait == kBarrier; }
static void warp(Thread &, unsigned lanes) { seen[5] += __builtin_popcount(lanes); }
static void thread_exit(Thread &) { ++seen[6]; }
static void block_begin(Block &b) { seen[7] += b.shared_bytes > 0; }
extern const Observer observer;
const Observer observer = {nullptr, nullptr, block_begin, nullptr, nullptr, thread_exit,
                           barrier, warp, access, nullptr};
}
"""
WATCHED = """
__global__ void k(const float4 *in, float *out, int *count) {
  __shared__ float s[32];
  const float4 v = in[threadIdx.x];
  s[threadIdx.x] = v.x + v.w;
  __syncthreads();
  out[threadIdx.x] = s[31 - threadIdx.x];
  if (__any_sync(0xffffffffu, threadIdx.x == 3)) atomicAdd(count, 1);
}
"""


def test_an_observer_sees_each_access(tmp_path):
    (tmp_path / "observer.cpp").write_text(OBSERVER)
    library = tmp_path / "observer.so"
    command = [*compiler.command(), *compiler.LANGUAGE, f"-I{compiler.HERE}", "-shared"]
    subprocess.run([*command, str(tmp_path / "observer.cpp"), "-o", str(library)], check=True)
    observer = ctypes.CDLL(str(library))
    source = tmp_path / "watched.cu"
    source.write_text(WATCHED)
    x, out, count = torch.rand(32, 4), torch.empty(32), ints(1)
    address = ctypes.addressof(ctypes.c_char.in_dll(observer, "observer"))
    run("k", x, out, count, source=source, kind="watched", workers=1, observer=address)
    assert torch.equal(out, (x[:, 0] + x[:, 3]).flip(0))
    observer.counts.restype = ctypes.POINTER(ctypes.c_longlong)
    reads, writes, atomics, bytes_, barriers, lanes, exits, blocks = observer.counts()[:8]
    assert (atomics, barriers, lanes, exits, blocks) == (32, 1, 32, 32, 1)
    assert writes == 64
    assert (reads, bytes_) == (64, 32 * (16 + 4 + 4 + 4 + 4))
    observer.where.restype = ctypes.POINTER(ctypes.c_void_p)
    assert messages.line_of(observer.where()[0]) == "watched.cu:4"


# ---- through plans and verify


def test_a_public_call_reaches_the_named_rung():
    x = torch.randn(3, 1000)
    seen = []
    with kw.use(softmax="cuda_warp"), emulator.mode(before=lambda step, values: seen.append(step)):
        y = kw.softmax(x, -1)
    torch.testing.assert_close(y, torch.softmax(x, -1))
    assert [step.kernel.name.split("<")[0] for step in seen] == ["softmax_fwd_warp"]


def test_several_threads_launch_at_once():
    def work(_):
        x = torch.randn(8, 3000)
        return all(
            torch.allclose(kw.softmax(x, -1), torch.softmax(x, -1), atol=1e-6) for _ in range(20)
        )

    with kw.use(softmax="cuda_block"), ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(8)))


@no_gpu
def test_clusters_are_compiled_for_each_architecture_that_has_them():
    softmax = ladder("softmax")
    rung, config = softmax.rung("cuda_cluster"), {"vectors": 8, "blocks": 2}
    outcome, why = kernels.compile_rung(softmax, rung, config)
    assert outcome == "compiled", why
    assert "for sm_90a, 1 for sm_100a, 1 for sm_120a; " in why
    assert "sm_80" not in why


@no_gpu
def test_a_rung_that_does_not_build_is_an_error_and_tried_once(monkeypatch):
    total = ladder("sum")
    rung = total.rung("cuda_rows")
    tried = []

    def refuse(wanted):
        tried.append(wanted)
        raise CompileError("cuda_rows.cu:7: the emulator does not know wgmma")

    monkeypatch.setattr(emulator, "ensure", refuse)
    kernels.refusal.cache_clear()
    for case in verify.thorough_cases(total)[:2]:
        found = verify.verify_case(total, rung, rung.configs[0], case)
        assert found.outcome == "error"
        assert found.why == "CompileError: cuda_rows.cu:7: the emulator does not know wgmma"
    assert len(tried) == 1
    kernels.refusal.cache_clear()


def test_two_processes_build_the_same_at_once(tmp_path):
    source = tmp_path / "rung.cu"
    source.write_text("__global__ void k(int *x) { x[threadIdx.x] = 7; }")
    code = (
        "import sys; from pathlib import Path; from kernelwright.contract import CudaKernel; "
        "from kernelwright.toolchain.emulator import launch; "
        "print(launch.load(CudaKernel(Path(sys.argv[1]), 'k')).kinds)"
    )
    environment = {**os.environ, "KW_CACHE": str(tmp_path / "cache")}
    children = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(source)], env=environment, stdout=subprocess.PIPE
        )
        for _ in range(2)
    ]
    for child in children:
        assert child.communicate()[0].decode().strip() == "('pointer',)"


def test_the_runtime_compiles_for_aarch64(tmp_path):
    cross = shutil.which("aarch64-linux-gnu-g++")
    if cross is None:
        pytest.skip("no aarch64-linux-gnu-g++ on this machine")
    for name in compiler.RUNTIME:
        command = [cross, *compiler.LANGUAGE, "-c", str(compiler.HERE / name)]
        subprocess.run([*command, "-o", str(tmp_path / f"{name}.o")], check=True)


@pytest.mark.parametrize("header", [p.name for p in sorted((nvrtc.INCLUDE / "kw").glob("*.cuh"))])
def test_our_headers_have_cpu_bodies(header, tmp_path):
    source = tmp_path / "rung.cu"
    source.write_text(f"#include <kw/{header}>\n__global__ void k(float *x) {{ *x = 8; }}\n")
    x = torch.zeros(1)
    run("k", x, source=source, block=1)
    assert x.item() == 8
