"""One launch for all parameters.

Idea: the addresses of all tensors are in one array, and a table assigns parts of tensors to
programs. A program computes its parameter's factors itself, in float64, because 1 - beta2 and 1 -
beta2^step would lose precision in float32. The last program of a parameter increments its step,
after all others have read it.
Traffic: p, m, v read and written, g read, once, as in `triton_each`; also 16 bytes per program.
Compared with `triton_each`: one launch instead of two per parameter.
Limit: DRAM bandwidth. If one tensor is not aligned to 16 bytes, all are read element by element.
"""

import torch
import triton
import triton.language as tl

from kernelwright.contract import (
    Launch,
    Plan,
    Pointers,
    Scratch,
    TensorSpec,
    TritonKernel,
    f32,
    f64,
    i64,
)
from kernelwright.contract.arithmetic import chunks
from kernelwright.ops._triton.random import round_stochastic, words

# optional tensors, and the kernel's names for their presence
OPTIONAL = {"lr_tensor": "LR_TENSOR", "grad_scale": "GRAD_SCALE", "found_inf": "FOUND_INF",
            "seed": "SEEDED"}  # fmt: skip
LARGEST = tl.constexpr(3.4028234663852886e38)  # subtracted from an infinite v, it is no NaN
TYPES = {torch.float32: tl.float32, torch.float16: tl.float16, torch.bfloat16: tl.bfloat16}


@triton.jit
def power(base, n):
    """base^n for an integer n, by squaring."""
    result = base * 0.0 + 1.0
    while n > 0:
        result = tl.where(n % 2 == 1, result * base, result)
        base *= base
        n = n // 2
    return result


@triton.jit
def element_pointer(row, COLUMN: tl.constexpr, DTYPE: tl.constexpr, ALIGN: tl.constexpr):
    address = tl.load(row + COLUMN)
    return tl.multiple_of(address.to(tl.pointer_type(DTYPE)), ALIGN)


@triton.jit
def update(
    row, i, mask, k, quad, decay, weight1, weight2, step_size, inverse_root, eps, scale, seed,
    P: tl.constexpr, G: tl.constexpr, S: tl.constexpr, C: tl.constexpr, ALIGN: tl.constexpr,
    BLOCK: tl.constexpr, MAXIMIZE: tl.constexpr, SEEDED: tl.constexpr,
):  # fmt: skip
    p_ptr, g_ptr = element_pointer(row, 0, P, ALIGN) + i, element_pointer(row, 1, G, ALIGN) + i
    m_ptr, v_ptr = element_pointer(row, 2, S, ALIGN) + i, element_pointer(row, 3, S, ALIGN) + i
    p = tl.load(p_ptr, mask=mask).to(tl.float32)
    g = tl.load(g_ptr, mask=mask).to(tl.float32)
    m = tl.load(m_ptr, mask=mask).to(tl.float32)
    v = tl.load(v_ptr, mask=mask).to(tl.float32)
    g = tl.div_rn(g, scale)
    if MAXIMIZE:
        g = -g
    m += weight1 * (g - m)
    v = weight2 * g * g + (v - tl.minimum(weight2 * v, LARGEST))
    p = p * decay - step_size * tl.div_rn(m, tl.sqrt_rn(v) * inverse_root + eps)
    tl.store(p_ptr, p.to(P), mask=mask)
    if C is not None:
        tl.store(element_pointer(row, 5, C, ALIGN) + i, p.to(C), mask=mask)
    if SEEDED:
        random = words(tl.load(seed), (k.to(tl.int64) << 40) + quad, BLOCK // 4)
        tl.store(m_ptr, round_stochastic(m, random & 0xFFFF), mask=mask)
        tl.store(v_ptr, round_stochastic(v, (random >> 16) & 0xFFFF), mask=mask)
    else:
        tl.store(m_ptr, m.to(S), mask=mask)
        tl.store(v_ptr, v.to(S), mask=mask)


@triton.jit
def adamw_list(
    addresses, chunks, sizes, arrived, lr, beta1, beta2, weight_decay, eps,
    lr_tensor, grad_scale, found_inf, seed,
    P: tl.constexpr, G: tl.constexpr, S: tl.constexpr, C: tl.constexpr, COLUMNS: tl.constexpr,
    BLOCK: tl.constexpr, ALIGN: tl.constexpr, MAXIMIZE: tl.constexpr, LR_TENSOR: tl.constexpr,
    GRAD_SCALE: tl.constexpr, FOUND_INF: tl.constexpr, SEEDED: tl.constexpr,
):  # fmt: skip
    k = tl.load(chunks + 2 * tl.program_id(0))
    first = tl.load(chunks + 2 * tl.program_id(0) + 1).to(tl.int64) * BLOCK
    n = tl.load(sizes + k)
    row = addresses + k * COLUMNS
    step_ptr = element_pointer(row, 4, tl.float32, 4)
    step = tl.load(step_ptr) + 1.0
    if LR_TENSOR:
        lr = tl.load(lr_tensor).to(tl.float64)
    t = step.to(tl.int64)
    decay = (1.0 - lr * weight_decay).to(tl.float32)
    weight1, weight2 = (1.0 - beta1).to(tl.float32), (1.0 - beta2).to(tl.float32)
    step_size = (lr / (1.0 - power(beta1, t))).to(tl.float32)
    inverse_root = (1.0 / tl.sqrt(1.0 - power(beta2, t))).to(tl.float32)
    end, scale = n, 1.0
    if FOUND_INF:
        end = tl.where(tl.load(found_inf) == 0.0, n, 0)
    if GRAD_SCALE:
        scale = tl.load(grad_scale)

    i = first + tl.arange(0, BLOCK)
    if first + BLOCK <= end:  # without a mask the compiler may load 16 bytes at once
        update(
            row, i, None, k, first // 4, decay, weight1, weight2, step_size, inverse_root, eps,
            scale, seed, P, G, S, C, ALIGN, BLOCK, MAXIMIZE, SEEDED,
        )  # fmt: skip
    else:
        update(
            row, i, i < end, k, first // 4, decay, weight1, weight2, step_size, inverse_root, eps,
            scale, seed, P, G, S, C, ALIGN, BLOCK, MAXIMIZE, SEEDED,
        )  # fmt: skip

    tl.debug_barrier()  # every warp of the program has read the step
    if tl.atomic_add(arrived + k, 1) == (n - 1) // BLOCK:
        tl.store(arrived + k, 0)
        if end > 0:
            tl.store(step_ptr, step)


def plan(gpu, config, params, grads, exp_avgs, exp_avg_sqs, copies, maximize, **others):
    lists = {"params": params, "grads": grads, "exp_avgs": exp_avgs, "exp_avg_sqs": exp_avg_sqs}
    pointers = (*lists, "state_steps", *(["copies"] if copies else []))
    aligned = all(t.align == 16 for ts in (*lists.values(), copies) for t in ts)
    maybe = {n: others.get(n) is not None for n in OPTIONAL}
    kernel = TritonKernel(
        adamw_list,
        {
            "P": TYPES[params[0].dtype],
            "G": TYPES[grads[0].dtype],
            "S": TYPES[exp_avgs[0].dtype],
            "C": TYPES[copies[0].dtype] if copies else None,
            "COLUMNS": len(pointers),
            "BLOCK": config["block"],
            "ALIGN": 16 if aligned else 2,
            "MAXIMIZE": maximize,
            **{constexpr: maybe[n] for n, constexpr in OPTIONAL.items()},
        },
        num_warps=config["num_warps"],
    )
    sizes = [p.numel() for p in params]
    places = chunks(sizes, config["block"])
    numbers = (f64("lr"), f64("beta1"), f64("beta2"), f64("weight_decay"), f32("eps"))
    given = (n if there else i64(0) for n, there in maybe.items())
    args = (Pointers(pointers), "chunks", "sizes", "arrived", *numbers, *given)
    arrived = Scratch(TensorSpec.contiguous((len(params),), torch.int32), zero=True)
    return Plan(
        (Launch(kernel, (len(places), 1, 1), args),),
        {"arrived": arrived},
        {"chunks": places, "sizes": torch.tensor(sizes, device="cpu")},
    )
