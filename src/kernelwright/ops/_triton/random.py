"""Random words, and stochastic rounding with them."""

import triton
import triton.language as tl


@triton.jit
def words(seed, quad, QUADS: tl.constexpr):
    """4 QUADS adjacent 32-bit words, four from each Philox counter from `quad` on."""
    r0, r1, r2, r3 = tl.randint4x(seed, quad + tl.arange(0, QUADS))
    return tl.interleave(tl.interleave(r0, r2), tl.interleave(r1, r3)).to(tl.int32, bitcast=True)


@triton.jit
def round_stochastic(x, random):
    """Rounds float32 to bfloat16, up or down depending on 16 random bits; the mean over all 2^16 of
    them is x. Infinity and NaN are returned unchanged."""
    bits = x.to(tl.int32, bitcast=True)
    carried = ((bits + random) >> 16).to(tl.int16).to(tl.bfloat16, bitcast=True)
    return tl.where((bits & 0x7F800000) == 0x7F800000, x.to(tl.bfloat16), carried)
