// Division by a number known on the host: a multiplication, an addition and a shift.
#pragma once

namespace kw {

// `magic` and `shift` are computed in ops/_divisor.py; n is below 2^31.
struct Divisor {
  unsigned by, magic, shift;

  __device__ __forceinline__ unsigned quotient(unsigned n) const {
    return (__umulhi(n, magic) + n) >> shift;
  }
  // n becomes the quotient; returns the remainder.
  __device__ __forceinline__ unsigned divide(unsigned &n) const {
    const unsigned whole = n, q = quotient(n);
    n = q;
    return whole - q * by;
  }
};

}  // namespace kw
