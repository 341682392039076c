"""Shared by the Triton rungs of losses and look-ups: a class index out of range must fail."""

import os

import triton
import triton.language as tl

INTERPRETED = tl.constexpr(os.environ.get("TRITON_INTERPRET") == "1")


@triton.jit
def require(inside):
    """Abort the kernel unless a scalar condition holds, as PyTorch's device-side asserts do.

    A compiled kernel executes a trap: the launch fails at the next synchronization, and so does
    everything that the process does on the GPU afterwards. tl.device_assert gives a better message,
    but exists in debug builds only.
    """
    if INTERPRETED:
        assert inside, "target: is out of range for the classes"
    else:
        tl.inline_asm_elementwise(
            "{ .reg .pred p; setp.eq.s32 p, $1, 0; @p trap; mov.b32 $0, $1; }",
            "=r,r",
            [inside.to(tl.int32)],
            dtype=tl.int32,
            is_pure=False,
            pack=1,
        )
