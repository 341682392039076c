"""What random bits are for: rounding without bias."""

import triton
import triton.language as tl


@triton.jit
def words(seed, quad, QUADS: tl.constexpr):
    """4 QUADS neighbouring 32-bit words, four to each of Philox's counters from `quad` on."""
    r0, r1, r2, r3 = tl.randint4x(seed, quad + tl.arange(0, QUADS))
    return tl.interleave(tl.interleave(r0, r2), tl.interleave(r1, r3)).to(tl.int32, bitcast=True)


@triton.jit
def round_stochastic(x, random):
    """float32 to bfloat16, up or down by a random number of 16 bits; its mean over all of them is
    x. An infinity or a NaN has no neighbours."""
    bits = x.to(tl.int32, bitcast=True)
    carried = ((bits + random) >> 16).to(tl.int16).to(tl.bfloat16, bitcast=True)
    return tl.where((bits & 0x7F800000) == 0x7F800000, x.to(tl.bfloat16), carried)
