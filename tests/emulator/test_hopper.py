"""Hopper's instructions on the CPU: tiles of the tensor cores, boxes of the tensor memory
accelerator, and rungs that use them."""

import pytest
import torch

from kernelwright import emulator
from kernelwright.contract import CudaKernel, Launch, TensorMap, i32, i64, packed
from kernelwright.emulator import EmulationError, Schedule, hopper, launch
from kernelwright.emulator.hopper import instructions, statements
from kernelwright.support.errors import CompileError
from support.paths import FIXTURES

pytestmark = pytest.mark.skipif(emulator.missing() is not None, reason=str(emulator.missing()))


def cpp(text, operands=8):
    return instructions.cpp(text, instructions.Names(operands))


@pytest.mark.parametrize(
    ("ptx", "call"),
    [
        ("mbarrier.init.shared::cta.b64 [%0], %1;", "kw_mbarrier_init(kw_u(kw_0), kw_u(kw_1));"),
        (
            "mbarrier.arrive.shared::cta.b64 _, [%0 + 8];",
            "kw_mbarrier_arrive(kw_u(kw_0) + 8, 1);",
        ),
        ("cp.async.bulk.wait_group.read 0;", "kw_bulk_wait(kw_u(0));"),
        ("setmaxnreg.inc.sync.aligned.u32 %0;", "kw_registers(kw_u(kw_0));"),
    ],
)
def test_an_instruction_is_a_call_of_the_runtime(ptx, call):
    assert cpp(ptx) == call


@pytest.mark.parametrize(
    "ptx",
    [
        "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], 32",
        "cp.async.bulk.tensor.3d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%2, %3, %4}], [%5], {%6}",
        "wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16 {%0, %1, %2, %3}, %4, %5, %6, 0",
        "mbarrier.arrive.shared::cta.b64 %0, [%1]",
    ],
)
def test_what_is_not_emulated_is_refused_by_name(ptx):
    unit = f'# 7 "kernel.cu"\n\n {statements.WORD} volatile("{ptx};" : "=r"(a) : "r"(b), ' + (
        '"r"(c), "r"(d), "r"(e), "r"(f), "r"(g), "r"(h));'
    )
    with pytest.raises(CompileError, match=r"^kernel.cu:8: PTX `") as error:
        statements.translated(unit)
    assert str(error.value) == f"kernel.cu:8: PTX `{ptx}` is not emulated"


SOURCE = FIXTURES / "emulated" / "hopper.cu"
TENSOR = torch.arange(40 * 64, dtype=torch.int16).view(torch.bfloat16).reshape(40, 64)


def run(name, *args, block=128, maps=(), **how):
    """Launch a kernel of the fixture on tensors and Scalars, after its tensor maps."""
    tensors = tuple(f"a{i}" if isinstance(t, torch.Tensor) else t for i, t in enumerate(args))
    step = Launch(CudaKernel(SOURCE, name), (1, 1, 1), (*maps, *tensors), (block, 1, 1))
    values = (
        [packed(hopper.encoded(m, tensor.data_ptr())) for m, tensor in maps.items()] if maps else []
    )
    launch.run(launch.bound(step), step, [*values, *args], Schedule(**how))


def copied(tensor, x, y, *, wide=32, high=8, swizzle=64, to=(0, 0), expected=None, waits=1, seed=0):
    """The bytes of a box of a 2-D tensor in shared memory, after it was stored at `to`."""
    map_ = TensorMap("x", tensor.dtype, tuple(reversed(tensor.shape)), (tensor.stride(0) * 2,),
                     (wide, high), swizzle)  # fmt: skip
    size = wide * high * 2
    out = torch.zeros(size, dtype=torch.uint8)
    numbers = [i32(v) for v in (size, x, y, *to, size if expected is None else expected, waits)]
    run("box", out, *numbers, block=32, maps={map_: tensor}, seed=seed)
    return out


def box_of(tensor, x, y, wide, high, swizzle):
    """A model of the copy: zeros outside, and 16-byte units permuted by their 128-byte row."""
    bits = tensor.view(torch.int16)
    lines = torch.zeros(high, wide, dtype=torch.int16)
    for r in range(high):
        for c in range(wide):
            if 0 <= y + r < bits.shape[0] and 0 <= x + c < bits.shape[1]:
                lines[r, c] = bits[y + r, x + c]
    units = lines.reshape(-1, 8)
    at = torch.arange(len(units)) * 16
    to = at ^ ((at >> 7 & (max(swizzle, 16) // 16 - 1)) << 4)
    made = torch.empty_like(units)
    made[to // 16] = units
    return made.reshape(-1).view(torch.uint8)


@pytest.mark.parametrize(("wide", "swizzle"), [(8, 0), (16, 32), (32, 64), (64, 128)])
@pytest.mark.parametrize(("x", "y"), [(0, 0), (-5, -3), (56, 37), (-70, 0)])
def test_a_box_is_copied_with_zeros_outside_of_the_tensor(wide, swizzle, x, y):
    tensor = TENSOR.clone()
    found = copied(tensor, x, y, wide=wide, swizzle=swizzle, to=(24, 30))
    assert torch.equal(found, box_of(TENSOR, x, y, wide, 8, swizzle))
    stored = box_of(TENSOR, x, y, wide, 8, 0).view(torch.int16).reshape(8, wide)
    want = TENSOR.view(torch.int16).clone()
    want[30:38, 24 : 24 + wide] = stored[:, : 64 - 24]
    assert torch.equal(tensor.view(torch.int16), want)


def test_what_is_read_before_the_barriers_phase_is_not_there_yet():
    assert torch.equal(copied(TENSOR.clone(), 0, 0, waits=0), torch.full((512,), 255).byte())


def test_bytes_that_never_arrive_are_named():
    with pytest.raises(EmulationError, match=r"deadlocked(.|\n)*phase 0, .* 16 bytes are missing"):
        copied(TENSOR.clone(), 0, 0, expected=512 + 16)


def operands(kind, k):
    """A of 64 x k and B of 8 x k, and their bytes in shared memory without a swizzle: matrices of 8
    rows of 16 bytes, those along k 128 bytes apart, those along the width after them."""
    size = 1 if kind.itemsize == 1 else kind.itemsize
    made = []
    for rows in (64, 8):
        x = (torch.randn(rows, k) * 4).to(kind)
        raw = x.view(torch.uint8).reshape(rows // 8, 8, k * size // 16, 16).transpose(1, 2)
        memory = torch.zeros(8192, dtype=torch.uint8)
        memory[: raw.numel()] = raw.reshape(-1)
        made.append((x.double(), memory))
    return made


@pytest.mark.parametrize(
    ("name", "kind", "k"),
    [
        ("halves", torch.float16, 16),
        pytest.param("bfloats", torch.bfloat16, 16, marks=pytest.mark.long),
        ("e4m3", torch.float8_e4m3fn, 32),
        pytest.param("e5m2", torch.float8_e5m2, 32, marks=pytest.mark.long),
    ],
)
@pytest.mark.parametrize("add", [0, 1])
def test_a_product_of_each_type(name, kind, k, add):
    torch.manual_seed(k)
    (a, of_a), (b, of_b) = operands(kind, k)
    d = torch.randn(64, 8)
    want = a @ b.T + add * d.double()
    run(name, of_a, of_b, d, i64(128), i64(8 * k * kind.itemsize), i64(0), i32(add), i32(1))
    relative = 2**-12 if kind.itemsize == 1 else 2**-22
    largest = (a.abs() @ b.abs().T + d.abs()).max()
    assert (d - want).abs().max() <= relative * largest


def product(name, a, b, kind, c=0.0):
    """d[0][0] of a product whose first row and column are given; the others are zero."""
    memory = []
    for values in (a, b):
        raw = torch.tensor(values).to(kind).view(torch.uint8).reshape(-1, 16)
        whole = torch.zeros(512, 16, dtype=torch.uint8)
        whole[torch.arange(len(raw)) * 8] = raw  # the first row of each matrix along k
        memory.append(whole)
    d = torch.full((64, 8), c)
    run(name, *memory, d, i64(128), i64(1024), i64(0), i32(1), i32(1))
    return d[0, 0].item()


def test_terms_are_cut_off_below_the_last_bit_that_the_tensor_core_keeps():
    ones = [1.0] * 15
    cut = [2.0**-13] + [0.0] * 15  # its square is 2^-26
    assert product("halves", cut, cut, torch.float16, c=1.0) == 1.0
    kept = [2.0**-12] + [0.0] * 15
    assert product("halves", kept, [2.0**-13, *ones], torch.float16) == 2.0**-25
    # 2^-25 is kept four times: a float's last bit below 1 is 2^-24
    four = [2.0**-12] * 4 + [0.0] * 12
    lower = [2.0**-13] * 4 + [0.0] * 12
    assert product("halves", four, lower, torch.float16, c=1.0) == 1.0 + 2.0**-23
    rest = [0.0] * 28
    assert product("e4m3", [2.0**-7] * 4 + rest, [2.0**-7] * 4 + rest, torch.float8_e4m3fn,
                   c=1.0) == 1.0  # fmt: skip
    assert product("e4m3", [2.0**-7] * 4 + rest, [2.0**-6] * 4 + rest, torch.float8_e4m3fn,
                   c=1.0) == 1.0 + 2.0**-11  # fmt: skip


def test_registers_of_a_product_hold_their_old_values_before_the_wait():
    torch.manual_seed(0)
    (_, of_a), (_, of_b) = operands(torch.float16, 16)
    d = torch.randn(64, 8)
    before = d.clone()
    run("halves", of_a, of_b, d, i64(128), i64(256), i64(0), i32(0), i32(0))
    assert torch.equal(d[:48], before[:48])  # the last warp may come after another one's wait


def test_a_descriptor_outside_of_shared_memory_is_named():
    (_, of_a), (_, of_b) = operands(torch.float16, 16)
    with pytest.raises(EmulationError, match=r"descriptor leads to byte .* at hopper.cu"):
        run("halves", of_a, of_b, torch.zeros(64, 8), i64(128), i64(16000), i64(0), i32(0), i32(1))
