"""Tests of division by a multiplication."""

import random

from kernelwright.ops._divisor import divisor


def test_divisors_are_exact():
    draw = random.Random(1)
    drawn = [draw.randrange(1, 2**31) for _ in range(50)]
    for by in (1, 2, 3, 7, 255, 256, 641, 2**30, 2**31 - 1, *drawn):
        _, magic, shift = memoryview(divisor(by)).cast("I")
        assert magic < 2**32
        near = [k * by + e for k in (1, 2, (2**31 - 1) // by) for e in (-1, 0, 1)]
        for n in (0, 2**31 - 1, *near, *(draw.randrange(2**31) for _ in range(20))):
            if 0 <= n < 2**31:
                assert ((n * magic >> 32) + n) >> shift == n // by, (n, by)
