"""Factors of dropout in a tile of rows and columns, from the words of `ops/random/_keep.py`.

DRAW gives their source: 0, none (all factors are 1); 1, a seed; 2, the bits of a stored mask.
"""

import triton
import triton.language as tl


@triton.jit
def exchanged(word):
    """The word with its two 16-bit halves exchanged."""
    return word << 16 | word >> 16


@triton.jit
def octet_words(seed, octet):
    """Eight adjacent words for each octet: four from Philox, each followed by its exchanged
    form."""
    r0, r1, r2, r3 = tl.randint4x(seed, octet)
    word = tl.interleave(tl.interleave(r0, r2), tl.interleave(r1, r3))
    return tl.interleave(word, exchanged(word)).to(tl.int32, bitcast=True)


@triton.jit
def keeps(words, p):
    """Compares 24-bit integers; p is float64, since 1 - p would lose precision near p = 1."""
    return ((words >> 8) & 0xFFFFFF) >= tl.ceil(p * 16777216.0).to(tl.int32)


@triton.jit
def scaled(keep, p):
    """The factors. Dropped elements are multiplied by 0 and not set to 0, so that NaN remains
    NaN."""
    return tl.where(keep, tl.div_rn(1.0, (1.0 - p).to(tl.float32)), 0.0)


@triton.jit
def mask_bits(mask_ptr, i, inside):
    """Bit i % 32 of word i // 32, for each element."""
    return (tl.load(mask_ptr + (i >> 5), mask=inside, other=0) >> (i & 31).to(tl.int32)) & 1


@triton.jit
def tile_factors(
    seed_ptr, mask_ptr, p, row, first, n_cols, inside,
    DRAW: tl.constexpr, WHOLE: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """Factors of rows `row` (ROWS, 1) and the COLS columns from `first` on. WHOLE: the number of
    columns is divisible by 8, so that one Philox call produces the words of eight elements;
    otherwise there is one call per element."""
    if DRAW == 1:
        seed = tl.load(seed_ptr)
        if WHOLE:
            octet = (row * n_cols + first) // 8 + tl.arange(0, COLS // 8)[None, :]
            words = octet_words(seed, octet)
        else:
            i = row * n_cols + first + tl.arange(0, COLS)[None, :]
            r0, r1, r2, r3 = tl.randint4x(seed, i // 8)
            pair = i // 2 % 4
            word = tl.where(pair < 2, tl.where(pair == 0, r0, r1), tl.where(pair == 2, r2, r3))
            words = tl.where(i % 2 == 0, word, exchanged(word)).to(tl.int32, bitcast=True)
        factors = scaled(keeps(words, p), p)
    else:
        i = row * n_cols + first + tl.arange(0, COLS)[None, :]
        factors = scaled(mask_bits(mask_ptr, i, inside) != 0, p)
    return factors
