// Floating-point numbers of 8 bits: e4m3 (no infinities) and e5m2.
#pragma once
#include <cmath>
#include <cstdint>

namespace kw::ptx {

inline double small_value(unsigned char bits, int mantissa, int bias) {
  const int e = (bits & 0x7f) >> mantissa, m = bits & ((1 << mantissa) - 1);
  const double x =
      e ? std::ldexp(1 + std::ldexp(m, -mantissa), e - bias) : std::ldexp(m, 1 - bias - mantissa);
  return bits & 0x80 ? -x : x;
}
inline double e4m3_value(unsigned char bits) {
  return (bits & 0x7f) == 0x7f ? NAN : small_value(bits, 3, 7);
}
inline double e5m2_value(unsigned char bits) {
  if ((bits & 0x7f) > 0x7c) return NAN;
  return (bits & 0x7f) == 0x7c ? (bits & 0x80 ? -INFINITY : INFINITY) : small_value(bits, 2, 15);
}
// The nearest value, ties to even; values out of range become the largest (satfinite).
inline unsigned char small_bits(double x, int mantissa, int bias, unsigned char largest) {
  const unsigned char sign = std::signbit(x) ? 0x80 : 0;
  const double a = std::fabs(x);
  if (a != a) return 0x7f;
  int e = a > 0 ? std::ilogb(a) : 1 - bias;
  if (e < 1 - bias) e = 1 - bias;
  const double quantum = std::ldexp(1.0, e - mantissa);
  const double n = std::nearbyint(a / quantum);
  const int code = static_cast<int>(n) + ((e + bias - 1) << mantissa);
  return sign | static_cast<unsigned char>(std::isinf(a) || code > largest ? largest : code);
}
inline unsigned char e4m3_bits(double x) { return small_bits(x, 3, 7, 0x7e); }
inline unsigned char e5m2_bits(double x) { return small_bits(x, 2, 15, 0x7b); }

}  // namespace kw::ptx
