"""Numbers by which kernels divide, prepared on the host for include/kw/divisor.cuh."""

from __future__ import annotations

from struct import pack as to_bytes

from kernelwright.contract import packed
from kernelwright.contract.plan import Scalar

MOST = 2**31 - 1  # largest number that kernels divide in 32 bits


def divisor(by: int) -> bytes:
    """kw::Divisor: with l the smallest number for which 2^l >= by, n / by is (mulhi(n, magic) + n)
    >> l for every n below 2^31 (Granlund and Montgomery, Division by Invariant Integers, 1994)."""
    assert 0 < by <= MOST, by
    shift = (by - 1).bit_length()
    return to_bytes("<III", by, (2**32 * (2**shift - by)) // by + 1, shift)


def divisors(*by: int) -> Scalar:
    """A structure that consists of kw::Divisor members only."""
    return packed(b"".join(map(divisor, by)))
