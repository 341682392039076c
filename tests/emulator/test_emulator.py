"""CUDA C++ on the CPU: each primitive against a model in Python."""

import math
import random
from fractions import Fraction

import pytest
import torch

from kernelwright import emulator
from kernelwright.contract import i32, i64
from kernelwright.emulator import build
from support.primitives import build_together, ints, run

pytestmark = pytest.mark.skipif(emulator.missing() is not None, reason=str(emulator.missing()))


@pytest.fixture(scope="module", autouse=True)
def built():
    build_together()


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


def test_dynamic_shared_memory_that_no_array_takes(tmp_path):
    source = tmp_path / "rung.cu"
    source.write_text(
        "__global__ void k(float *x) {\n"
        "  __shared__ float s[64];\n"
        "  s[threadIdx.x] = x[threadIdx.x];\n"
        "  __syncthreads();\n"
        "  x[threadIdx.x] = s[63 - threadIdx.x];\n"
        "}\n"
    )
    for shared in (0, 16, 4096, build.MOST_SHARED):
        x = torch.arange(64.0)
        run("k", x, source=source, grid=1, block=64, shared=shared)
        assert torch.equal(x, torch.arange(64.0).flip(0))


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
