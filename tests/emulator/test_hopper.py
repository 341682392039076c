"""Hopper's instructions on the CPU: tiles of the tensor cores, boxes of the tensor memory
accelerator, and rungs that use them."""

import re
from functools import cache

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
        ("cp.async.bulk.wait_group.read 0;", "kw_bulk_wait(kw_u(0), true);"),
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
        "mbarrier.arrive.noComplete.shared::cta.b64 %0, [%1], %2",
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
KERNELS = [
    "box", "to_the_next", "halves", "bfloats", "e4m3", "e5m2", "states",
    "reduced<float>", "reduced<int>", "reduced<__nv_bfloat16>", "reduced<__half>",
    *re.findall(r"^(?:OF_FOUR|OF_TWO|FROM_FOUR)\((held_\w+)", SOURCE.read_text(), re.M),
]  # fmt: skip
TENSOR = torch.arange(40 * 64, dtype=torch.int16).view(torch.bfloat16).reshape(40, 64)


@cache
def built():
    """Build the kernels of the fixture together, which is cheaper than one by one."""
    emulator.ensure(CudaKernel(SOURCE, name) for name in KERNELS)


def run(name, *args, block=128, maps=(), grid=1, cluster=1, nan=False, **how):
    """Launch a kernel of the fixture on tensors and Scalars, after its tensor maps."""
    built()
    tensors = tuple(f"a{i}" if isinstance(t, torch.Tensor) else t for i, t in enumerate(args))
    kernel = CudaKernel(SOURCE, name, cluster)
    step = Launch(kernel, (grid, 1, 1), (*maps, *tensors), (block, 1, 1))
    values = []
    for m, tensor in dict(maps).items():
        bits = bytearray(hopper.encoded(m, tensor.data_ptr()))
        bits[87] = nan  # runtime.h's TensorMap
        values.append(packed(bytes(bits)))
    launch.run(launch.bound(step), step, [*values, *args], Schedule(**how))


def copied(tensor, x, y, *, wide=32, high=8, swizzle=64, to=(0, 0), expected=None, waits=1, seed=0,
           nan=False):  # fmt: skip
    """The bytes of a box of a 2-D tensor in shared memory, after it was stored at `to`."""
    map_ = TensorMap("x", tensor.dtype, tuple(reversed(tensor.shape)), (tensor.stride(0) * 2,),
                     (wide, high), swizzle)  # fmt: skip
    size = wide * high * 2
    out = torch.zeros(size, dtype=torch.uint8)
    numbers = [i32(v) for v in (size, x, y, *to, size if expected is None else expected, waits)]
    run("box", out, *numbers, block=32, maps={map_: tensor}, seed=seed, nan=nan)
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
    box = torch.empty_like(units)
    box[to // 16] = units
    return box.reshape(-1).view(torch.uint8)


@pytest.mark.parametrize(("wide", "swizzle"), [(8, 0), (16, 32), (32, 64), (64, 128)])
@pytest.mark.parametrize(("x", "y"), [(0, 0), (-5, -3), (56, 37), (-70, 0)])
def test_a_box_is_copied_with_zeros_outside_of_the_tensor(wide, swizzle, x, y):
    tensor = TENSOR.clone()
    box = copied(tensor, x, y, wide=wide, swizzle=swizzle, to=(24, 30))
    assert torch.equal(box, box_of(TENSOR, x, y, wide, 8, swizzle))
    stored = box_of(TENSOR, x, y, wide, 8, 0).view(torch.int16).reshape(8, wide)
    want = TENSOR.view(torch.int16).clone()
    want[30:38, 24 : 24 + wide] = stored[:, : 64 - 24]
    assert torch.equal(tensor.view(torch.int16), want)


def test_a_box_has_nans_outside_of_the_tensor_if_the_map_says_so():
    box = copied(TENSOR.clone(), -5, 36, swizzle=0, nan=True).view(torch.int16).reshape(8, 32)
    outside = torch.ones(8, 32, dtype=torch.bool)
    outside[:4, 5:] = False
    assert (box[outside] == 0x7FFF).all()
    assert torch.equal(box[:4, 5:], TENSOR.view(torch.int16)[36:, :27])


def test_what_is_read_before_the_barriers_phase_is_not_there_yet():
    assert torch.equal(copied(TENSOR.clone(), 0, 0, waits=0), torch.full((512,), 255).byte())


def test_bytes_that_never_arrive_are_named():
    with pytest.raises(EmulationError, match=r"deadlocked(.|\n)*phase 0, .* 16 bytes are missing"):
        copied(TENSOR.clone(), 0, 0, expected=512 + 16)


def operands(kind, k):
    """A of 64 x k and B of 8 x k, and their bytes in shared memory without a swizzle: matrices of 8
    rows of 16 bytes, those along k 128 bytes apart, those along the width after them."""
    size = 1 if kind.itemsize == 1 else kind.itemsize
    matrices = []
    for rows in (64, 8):
        x = (torch.randn(rows, k) * 4).to(kind)
        raw = x.view(torch.uint8).reshape(rows // 8, 8, k * size // 16, 16).transpose(1, 2)
        memory = torch.zeros(8192, dtype=torch.uint8)
        memory[: raw.numel()] = raw.reshape(-1)
        matrices.append((x.double(), memory))
    return matrices


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


def laid_out(x, swizzle, k_major, lead, stride, base=0):
    """A matrix (width, k) in shared memory as the PTX ISA's canonical layouts place it: atoms of 8
    rows (of the width, or of k), each of one swizzle's width, whose 16-byte units are permuted by
    their row of 128 bytes, counted from the one with the number `base`, where the matrix begins."""
    size, line = x.element_size(), swizzle or 16
    wide = line // size  # elements of an atom's row
    memory = torch.zeros(16384, dtype=torch.uint8)
    raw = x.contiguous().view(torch.uint8).reshape(*x.shape, size)
    for row in range(x.shape[0]):
        for k in range(x.shape[1]):
            down, along = (row, k) if k_major else (k, row)
            atom, unit = (along % wide * size, along // wide)
            at = down % 8 * line + atom
            if k_major:
                at += down // 8 * stride + unit * (lead if not swizzle else line)
            elif swizzle:
                at += down // 8 * stride + unit * lead
            else:
                at += down // 8 * lead + unit * stride
            at ^= (at >> 7 & (line // 16 - 1)) << 4
            memory[base * 128 + at : base * 128 + at + size] = raw[row, k]
    return memory


def descriptor(swizzle, lead, stride, base=0):
    kind = {0: 0, 128: 1, 64: 2, 32: 3}[swizzle]
    bits = kind << 62 | base << 49 | stride // 16 << 32 | lead // 16 << 16 | base * 8
    return i64(bits - (bits >> 63 << 64))


TYPES = {"f16": torch.float16, "bf16": torch.bfloat16, "tf32": torch.float32,
         "e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2, "s8": torch.int8,
         "u8": torch.uint8, "s32": torch.int32, "f32": torch.float32}  # fmt: skip


def drawn(rows, k, name):
    kind = TYPES[name]
    if not kind.is_floating_point:
        return torch.randint(*((-128, 128) if name == "s8" else (0, 256)), (rows, k)).to(kind)
    return (torch.randn(rows, k) * 4).to(kind)


def exactly(x, name):
    """The values that a tensor core reads: of tf32, 10 bits of mantissa."""
    return (x.view(torch.int32) & ~0x1FFF).view(torch.float32).double() if name == "tf32" else (
        x.double())  # fmt: skip


def held(d, count):
    """D of 64 x 8 as words of each of 128 threads: the layout of figure "WGMMA .m64nNk16 register
    fragment layout for accumulator matrix D"; two float16 are one word."""
    each = d.reshape(4, 2, 8, 4, 2).permute(0, 2, 3, 1, 4).reshape(128, 4)
    return each.contiguous().view(torch.int32).reshape(128, count).clone()


def shown(words, kind):
    each = words.view(kind).reshape(4, 8, 4, 2, 2)
    return each.permute(0, 3, 1, 2, 4).reshape(64, 8)


def fragments(a):
    """A of 64 x k as four words of each thread: neighbours along k in one word."""
    each = 4 // a.element_size()
    parts = a.reshape(4, 2, 8, 2, 4, each).permute(0, 2, 4, 3, 1, 5)
    return parts.contiguous().view(torch.int32).reshape(128, 4)


def multiplied(name, types, *, layouts=((0, True), (0, True)), add=1, signs=1, seed=0, from_=False,
               base=0):  # fmt: skip
    """D of a kernel of the fixture on random operands, and what it should be."""
    torch.manual_seed(seed)
    result, *kinds = types
    k = 32 // TYPES[kinds[0]].itemsize
    values, memory, bits = [], [], []
    for rows, kind, (swizzle, k_major) in zip((64, 8), kinds, layouts, strict=True):
        x = drawn(rows, k, kind)
        wide = max(swizzle, 16) // x.element_size()
        lines = rows if k_major else k
        lead = 128 if not swizzle else 8 * swizzle * (k // 8)  # of the next atom along the width
        stride = 8 * max(swizzle, 16)
        if not swizzle:
            stride = 128 * (-(-k // wide) if k_major else lines // 8)
        values.append(x)
        memory.append(laid_out(x, swizzle, k_major, lead, stride, base))
        bits.append(descriptor(swizzle, lead, stride, base))
    d = drawn(64, 8, "s8").int() * 2**20 if result == "s32" else drawn(64, 8, result)
    words = held(d, 2 if result == "f16" else 4)
    from_a = fragments(values[0]) if from_ else torch.zeros(128, 4, dtype=torch.int32)
    if from_:
        memory[0].zero_()
    run(name, *memory, from_a, words, *bits, i32(add))
    a, b = (exactly(x, kind) for x, kind in zip(values, kinds, strict=True))
    want = signs * (a @ b.T) + add * d.double()
    return (
        shown(words, TYPES[result]).double(),
        want,
        (a.abs() @ b.abs().T + d.double().abs()).max(),
    )


@pytest.mark.parametrize(
    ("name", "types", "how"),
    [
        ("held_tf32", ("f32", "tf32", "tf32"), {}),
        ("held_e4m3_e5m2", ("f32", "e4m3", "e5m2"), {}),
        ("held_s8", ("s32", "s8", "s8"), {}),
        ("held_u8_s8", ("s32", "u8", "s8"), {}),
        ("held_f16_minus_a", ("f32", "f16", "f16"), {"signs": -1}),
        ("held_bf16_minus_b", ("f32", "bf16", "bf16"), {"signs": -1}),
        ("held_minus_both", ("f32", "tf32", "tf32"), {}),
        ("held_f16_f16", ("f16", "f16", "f16"), {}),
        ("held_f16_e4m3", ("f16", "e4m3", "e4m3"), {}),
        ("held_from_f16", ("f32", "f16", "f16"), {"from_": True}),
        ("held_from_tf32", ("f32", "tf32", "tf32"), {"from_": True}),
        ("held_from_e4m3", ("f32", "e4m3", "e4m3"), {"from_": True}),
        ("held_from_s8", ("s32", "s8", "s8"), {"from_": True}),
    ],
)
@pytest.mark.parametrize("add", [0, 1])
def test_products_agree_with_exact_ones(name, types, how, add):
    for seed in range(2):
        product, want, largest = multiplied(name, types, add=add, seed=seed, **how)
        if types[0] == "s32":
            assert torch.equal(product, want)
            continue
        small = TYPES[types[1]].itemsize == 1
        relative = (2**-12 if small else 2**-22) + (2**-11 if types[0] == "f16" else 0)
        assert (product - want).abs().max() <= relative * largest


def test_integer_sums_are_clamped_where_the_instruction_says_so():
    most = torch.full((64, 8), 2**31 - 1, dtype=torch.int32)
    ones = torch.full((64, 32), 127, dtype=torch.int8)
    memory = [laid_out(x, 0, True, 128, 256) for x in (ones, ones[:8])]
    for name, want in (("held_s8_saturated", 2**31 - 1), ("held_s8", 32 * 127**2 - 2**31 - 1)):
        words = held(most, 4)
        bits = descriptor(0, 128, 256)
        run(name, *memory, torch.zeros(128, 4, dtype=torch.int32), words, bits, bits, i32(1))
        assert torch.equal(words, torch.full((128, 4), want, dtype=torch.int32))


@pytest.mark.parametrize("swizzle", [0, 32, 64, 128])
@pytest.mark.parametrize(("name", "majors"), [("held_f16", (True, True)),
                         ("held_f16_mn", (False, False)), ("held_f16_a_mn", (False, True)),
                         ("held_f16_b_mn", (True, False))])  # fmt: skip
def test_operands_in_every_layout(name, majors, swizzle):
    layouts = [(swizzle, major) for major in majors]
    product, want, largest = multiplied(name, ("f32", "f16", "f16"), layouts=layouts)
    assert (product - want).abs().max() <= 2**-22 * largest


@pytest.mark.parametrize("swizzle", [32, 64, 128])
def test_a_pattern_that_begins_elsewhere_has_a_base_offset(swizzle):
    """As the PTX ISA describes it: (address of the pattern >> 7) & 7."""
    layouts = [(swizzle, True)] * 2
    for base in (1, 3, 6):
        product, want, largest = multiplied(
            "held_f16", ("f32", "f16", "f16"), layouts=layouts, base=base
        )
        assert (product - want).abs().max() <= 2**-22 * largest


@pytest.mark.parametrize("seed", range(3))
def test_a_block_copies_from_its_shared_memory_to_anothers(seed):
    values = torch.randint(-(2**31), 2**31, (4, 64, 4)).int()
    out = torch.zeros_like(values)
    run("to_the_next", values, out, block=64, grid=4, cluster=2, seed=seed)
    assert torch.equal(out, values[[1, 0, 3, 2]])


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("float", torch.float32),
        ("int", torch.int32),
        ("__nv_bfloat16", torch.bfloat16),
        ("__half", torch.float16),
    ],
)
@pytest.mark.parametrize("seed", [0, 3])
def test_stores_that_add(name, dtype, seed):
    torch.manual_seed(seed)
    values = (torch.randn(4, 8, 32) * 8).to(dtype)
    tensor = (torch.randn(20, 48) * 8).to(dtype)
    before, most = tensor.clone(), torch.zeros(8, 32, dtype=torch.int32)
    map_ = TensorMap("x", dtype, (48, 20), (48 * dtype.itemsize,), (32, 8), 0)
    run(f"reduced<{name}>", values, most, i32(24), i32(-2), block=64, grid=4,
        maps={map_: tensor}, seed=seed)  # fmt: skip
    want = before.clone()
    for each in values:  # rounded after each addition, in one order
        want[:6, 24:] += each[2:, :24]
    assert torch.allclose(tensor.double(), want.double(), rtol=0.02, atol=0.1)
    assert torch.equal(tensor[6:], before[6:]) and torch.equal(tensor[:, :24], before[:, :24])
    bits = values.view(torch.int32).amax(0).clamp(min=0) if dtype.itemsize == 4 else 0 * most
    assert torch.equal(most, bits)


@pytest.mark.parametrize("seed", range(3))
def test_phases_by_their_states(seed):
    out = torch.zeros(3, 32, dtype=torch.int32)
    run("states", out, block=32, seed=seed)
    assert (out[0] >= 32).all() and (out[1] >= 64).all()
    assert torch.equal(out[2], torch.tensor([80, 0] * 16, dtype=torch.int32))
