"""New tokens to their slots: one token per program.

Idea: a program reads a token's slot and copies its heads of keys and values, in 8 bits after a
multiplication by the reciprocal scale; for a negative slot it copies nothing.
Traffic: new keys and values read once and written once.
Compared with `native`: one kernel instead of two index_puts, a selection and, in 8 bits, three
conversions; and the host does not wait for the GPU.
Limit: with the few tokens of a decoding step, the launch.
"""

import triton
import triton.language as tl

from kernelwright.contract import Launch, Plan, TritonKernel, f32, i64
from kernelwright.contract.arithmetic import next_power_of_2

# the largest number of each 8-bit type, by which kernels recognize int8
LARGEST = {"": 0.0, "int8": 127.0, "e4m3": 448.0, "e5m2": 57344.0}


@triton.jit
def converted(x, scale, dtype: tl.constexpr, LARGEST: tl.constexpr):
    """x / scale in the cache's dtype; NaN remains NaN in float8."""
    if LARGEST == 0.0:
        y = x.to(dtype)
    else:
        y = tl.div_rn(x.to(tl.float32), scale)
        low = -128.0 if LARGEST == 127.0 else -LARGEST
        y = tl.minimum(tl.maximum(y, low, propagate_nan=tl.PropagateNan.ALL), LARGEST,
                       propagate_nan=tl.PropagateNan.ALL)  # fmt: skip
        if LARGEST == 127.0:
            y = ((y + 12582912.0) - 12582912.0).to(tl.int8)  # round to nearest, ties to even
        elif LARGEST == 448.0:
            y = y.to(tl.float8e4nv).to(tl.uint8, bitcast=True)
        else:
            y = y.to(tl.float8e5).to(tl.uint8, bitcast=True)
    return y


@triton.jit
def copied(
    from_ptr, to_ptr, scale, i, heads, d, from_h, from_col, to_h, inside, LARGEST: tl.constexpr,
):  # fmt: skip
    h, x = (i // d).to(tl.int64), i % d
    value = tl.load(from_ptr + h * from_h + x * from_col, mask=inside, other=0.0)
    stored = converted(value, scale, to_ptr.dtype.element_ty, LARGEST)
    tl.store(to_ptr + h * to_h + x, stored, mask=inside)


@triton.jit
def cache_scatter(
    key_ptr, value_ptr, k_ptr, v_ptr, slots_ptr, key_row, key_h, key_col, value_row, value_h,
    value_col, k_page, k_row, k_h, v_page, v_row, v_h, heads, d, dv, page, k_scale, v_scale,
    LARGEST: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64)
    slot = tl.load(slots_ptr + token).to(tl.int64)
    if slot >= 0:
        at, row = slot // page, slot % page
        i = tl.arange(0, BLOCK)
        copied(key_ptr + token * key_row, k_ptr + at * k_page + row * k_row, k_scale, i, heads, d,
               key_h, key_col, k_h, i < heads * d, LARGEST)  # fmt: skip
        copied(value_ptr + token * value_row, v_ptr + at * v_page + row * v_row, v_scale, i, heads,
               dv, value_h, value_col, v_h, i < heads * dv, LARGEST)  # fmt: skip


def plan(gpu, config, keys, values, k, v, slots, kind, k_scale, v_scale):
    n, heads, d = keys.shape
    dv = values.shape[2]
    largest = LARGEST[kind]
    block = next_power_of_2(heads * max(d, dv))
    kernel = TritonKernel(
        cache_scatter, {"LARGEST": largest, "BLOCK": block}, num_warps=min(8, max(1, block // 512))
    )
    strides = (*keys.stride(), *values.stride(), *k.stride()[:3], *v.stride()[:3])
    numbers = (*strides, heads, d, dv, k.shape[1])
    args = ("keys", "values", "k", "v", "slots", *map(i64, numbers), f32("k_scale"), f32("v_scale"))
    return Plan((Launch(kernel, (n, 1, 1), args),))
