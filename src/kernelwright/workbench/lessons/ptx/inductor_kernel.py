"""The kernel that torch.compile writes for softmax of 4096 x 768 floats on an H200.

The function is the output of PyTorch 2.13's compiler (TorchInductor) for that GPU's properties,
printed by `TORCH_LOGS=output_code`; its XBLOCK and number of warps are the compiler's choice.
"""
# ruff: noqa: F841

import triton
import triton.language as tl
from torch._inductor.runtime import triton_helpers
from torch._inductor.runtime.triton_helpers import libdevice

ROWS, COLUMNS = 4096, 768
XBLOCK, WARPS, STAGES = 1, 1, 1

# fmt: off


@triton.jit
def triton_per_fused_softmax(
    in_ptr0, out_ptr2, xnumel, r0_numel, XBLOCK: tl.constexpr
):
    xnumel = 4096
    r0_numel = 768
    R0_BLOCK: tl.constexpr = 1024
    rnumel = r0_numel
    RBLOCK: tl.constexpr = R0_BLOCK
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:, None]
    xmask = tl.full([XBLOCK], True, tl.int1)[:, None]
    r0_index = tl.arange(0, R0_BLOCK)[None, :]
    r0_offset = 0
    r0_mask = r0_index < r0_numel
    roffset = r0_offset
    rindex = r0_index
    r0_1 = r0_index
    x0 = xindex
    tmp0 = tl.load(in_ptr0 + (r0_1 + 768 * x0), r0_mask,
                   eviction_policy="evict_first", other=0.0)
    tmp1 = tl.broadcast_to(tmp0, [XBLOCK, R0_BLOCK])
    tmp3 = tl.where(r0_mask, tmp1, float("-inf"))
    tmp4 = triton_helpers.max2(tmp3, 1)[:, None].to(tl.float32)
    tmp5 = tmp0 - tmp4
    tmp6 = libdevice.exp(tmp5)
    tmp7 = tl.broadcast_to(tmp6, [XBLOCK, R0_BLOCK])
    tmp9 = tl.where(r0_mask, tmp7, 0)
    tmp10 = tl.sum(tmp9, 1)[:, None].to(tl.float32)
    tmp11 = tmp6 / tmp10
    tl.store(out_ptr2 + (r0_1 + 768 * x0), tmp11, r0_mask)
