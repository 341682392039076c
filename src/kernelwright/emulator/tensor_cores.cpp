// The arithmetic of an H200's wgmma, as measured by tools/wgmma_probe.cu. Products are exact; all k
// of them and the accumulator are aligned to the largest exponent (for a product, the sum of its
// factors'), each is truncated below a last bit, and they are added exactly; the sum is truncated
// to a float, or rounded to nearest even to 16 bits. The last bit is 2^-25 of the largest exponent
// for 16-bit types and tf32, as for mma.sync; 2^-13 for 8-bit floating-point numbers, whose sums
// have 13 bits of mantissa as floats (arXiv 2511.10909 has found the same).
#include "tensor_cores.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>

namespace kw::emulator {
namespace {

constexpr int kNothing = -10000;

template <typename To, typename From> To as(From x) {
  To made;
  static_assert(sizeof made == sizeof x);
  std::memcpy(&made, &x, sizeof made);
  return made;
}
int exponent_of(double x) { return static_cast<int>(as<std::uint64_t>(x) >> 52 & 0x7ff) - 1023; }
double power(int exponent) { return as<double>(std::uint64_t(exponent + 1023) << 52); }

// A number with `exponent` and `mantissa` bits after its sign.
double small_float(std::uint32_t bits, int exponent, int mantissa, bool infinities) {
  const int bias = (1 << (exponent - 1)) - 1, most = (1 << exponent) - 1;
  const int e = static_cast<int>(bits >> mantissa) & most;
  const std::uint32_t m = bits & ((1u << mantissa) - 1);
  const double sign = bits >> (exponent + mantissa) & 1 ? -1 : 1;
  if (infinities && e == most)
    return m ? std::numeric_limits<double>::quiet_NaN() : sign * INFINITY;
  if (!infinities && e == most && m == (1u << mantissa) - 1)  // e4m3
    return std::numeric_limits<double>::quiet_NaN();
  return sign * std::ldexp(e ? (1u << mantissa) + m : m, (e ? e : 1) - bias - mantissa);
}

double value_of(Format f, std::uint32_t bits) {
  switch (f) {
    case kHalf:
      return small_float(bits, 5, 10, true);
    case kBfloat:
      return as<float>(bits << 16);
    case kTf32:
      return as<float>(bits & ~0x1fffu);  // the tensor core reads 19 bits
    case kE4m3:
      return small_float(bits, 4, 3, false);
    case kE5m2:
      return small_float(bits, 5, 2, true);
    default:
      return as<float>(bits);
  }
}
// The exponent of the smallest normal number, which denormals have too.
int least_exponent(Format f) { return f == kHalf || f == kE5m2 ? -14 : f == kE4m3 ? -6 : -126; }

// A sum, truncated to `mantissa` bits after the first.
float truncated(double x, int mantissa) {
  if (std::fabs(x) >= 0x1p128) return std::copysign(INFINITY, x);
  float nearest = static_cast<float>(x);
  if (std::fabs(double(nearest)) > std::fabs(x)) nearest = std::nextafterf(nearest, 0);
  return as<float>(as<std::uint32_t>(nearest) & ~((1u << (23 - mantissa)) - 1));
}

// A row of A or a column of B. 0 has such a small exponent that no product with it is the largest.
struct Factors {
  double value[32];
  int exponent[32];
  bool finite = true;
};
void take(Factors &to, const std::uint32_t *bits, unsigned k, Format f, bool negated) {
  to.finite = true;
  for (unsigned i = 0; i < k; ++i) {
    const double x = value_of(f, bits[i]);
    to.value[i] = negated ? -x : x;
    to.exponent[i] = x == 0 ? 2 * kNothing : std::max(exponent_of(x), least_exponent(f));
    to.finite &= std::isfinite(x);
  }
}

std::uint32_t result(Format d, double x) {
  if (d == kHalf) return half_bits(x);
  return std::isnan(x) ? 0x7fffffffu : as<std::uint32_t>(static_cast<float>(x));
}

std::uint32_t dot(const Factors &x, const Factors &y, unsigned k, double c, const Product &p) {
  const bool small = bits_of(p.a) == 8;
  const int fraction = small ? 13 : 25, mantissa = small ? 13 : 23;
  const auto plain = [&] {
    double sum = c;
    for (unsigned i = 0; i < k; ++i) sum += x.value[i] * y.value[i];
    return result(p.d, sum);
  };
  if (!x.finite || !y.finite || !std::isfinite(c)) {
    bool special = !std::isfinite(c);
    for (unsigned i = 0; i < k; ++i) special |= !std::isfinite(x.value[i] * y.value[i]);
    if (special) return plain();
  }
  int largest = c != 0 ? std::max(exponent_of(c), -126) : kNothing;
  for (unsigned i = 0; i < k; ++i) largest = std::max(largest, x.exponent[i] + y.exponent[i]);
  if (largest == kNothing) return 0;  // of zeros, whatever their signs
  const int grid = std::max(largest, -126) - fraction;
  const double scale = power(-grid);
  std::int64_t sum = static_cast<int>(c * scale);
  for (unsigned i = 0; i < k; ++i) sum += static_cast<int>(x.value[i] * y.value[i] * scale);
  const double whole = static_cast<double>(sum) * power(grid);
  return result(p.d, p.d == kHalf ? whole : truncated(whole, mantissa));
}

std::int64_t integer(Format f, std::uint32_t bits) {
  return f == kInt8 ? static_cast<std::int8_t>(bits) : static_cast<std::int64_t>(bits & 0xff);
}

}  // namespace

double half_value(std::uint32_t bits) { return value_of(kHalf, bits); }

std::uint32_t half_bits(double x) {
  if (std::isnan(x)) return 0x7fff;
  const std::uint32_t sign = std::signbit(x) ? 0x8000 : 0;
  x = std::fabs(x);
  if (x >= 65520) return sign | 0x7c00;
  const int e = x == 0 ? -14 : std::max(exponent_of(x), -14);
  const double steps = std::nearbyint(x * power(10 - e));  // below 2049
  if (steps < 1024) return sign | static_cast<std::uint32_t>(steps);
  return sign + (static_cast<std::uint32_t>(e + 14) << 10) + static_cast<std::uint32_t>(steps);
}

void multiply(const Product &p, Tiles &t) {
  if (p.d == kInt32) {
    for (unsigned r = 0; r < 64; ++r)
      for (unsigned q = 0; q < p.n; ++q) {
        std::int64_t sum = p.adds ? static_cast<std::int32_t>(t.d[r][q]) : 0;
        for (unsigned i = 0; i < p.k; ++i) sum += integer(p.a, t.a[r][i]) * integer(p.b, t.b[q][i]);
        if (p.saturates) sum = std::clamp<std::int64_t>(sum, INT32_MIN, INT32_MAX);
        t.d[r][q] = static_cast<std::uint32_t>(sum);
      }
    return;
  }
  const auto columns = std::make_unique<Factors[]>(p.n);
  for (unsigned q = 0; q < p.n; ++q) take(columns[q], t.b[q], p.k, p.b, p.negates_b);
  for (unsigned r = 0; r < 64; ++r) {
    Factors row;
    take(row, t.a[r], p.k, p.a, p.negates_a);
    for (unsigned q = 0; q < p.n; ++q) {
      const double c = p.adds ? value_of(p.d == kHalf ? kHalf : kFloat, t.d[r][q]) : 0;
      t.d[r][q] = dot(row, columns[q], p.k, c, p);
    }
  }
}

}  // namespace kw::emulator
