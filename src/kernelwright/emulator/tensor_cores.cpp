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
  To bits;
  static_assert(sizeof bits == sizeof x);
  std::memcpy(&bits, &x, sizeof bits);
  return bits;
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

// The 256 numbers of an 8-bit format.
struct Bytes {
  double value[256];
  Bytes(int exponent, int mantissa, bool infinities) {
    for (unsigned i = 0; i < 256; ++i) value[i] = small_float(i, exponent, mantissa, infinities);
  }
};

double value_of(Format f, std::uint32_t bits) {
  static const Bytes e4m3(4, 3, false), e5m2(5, 2, true);
  switch (f) {
    case kHalf:
      if (const std::uint32_t e = bits >> 10 & 31; e && e != 31)
        return as<float>((bits & 0x8000) << 16 | (e + 112) << 23 | (bits & 0x3ff) << 13);
      return small_float(bits, 5, 10, true);
    case kBfloat:
      return as<float>(bits << 16);
    case kTf32:
      return as<float>(bits & ~0x1fffu);  // the tensor core reads 19 bits
    case kE4m3:
      return e4m3.value[bits & 0xff];
    case kE5m2:
      return e5m2.value[bits & 0xff];
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

#ifdef KW_AVX2  // this processor has it: 32 bytes are one register
#pragma GCC push_options
#pragma GCC target("avx2")
#endif

// Eight columns at once: what `dot` gives where no exponent is extreme and nothing infinite.
struct Eight {
  typedef float Floats __attribute__((vector_size(32)));
  typedef int Integers __attribute__((vector_size(32)));
  typedef double Wide __attribute__((vector_size(64)));
  typedef long long Bits __attribute__((vector_size(64)));
  Floats value[32];
  Integers exponent[32];
  bool finite = true;

  void take(const Factors *columns, unsigned k) {
    finite = true;
    for (unsigned q = 0; q < 8; ++q) {
      finite &= columns[q].finite;
      for (unsigned i = 0; i < k; ++i) {
        value[i][q] = static_cast<float>(columns[q].value[i]);
        exponent[i][q] = columns[q].exponent[i];
      }
    }
  }
  // The sums of c and the products with a row; false if `dot` has to be asked.
  template <bool SMALL>
  bool add(const Factors &row, unsigned k, const Floats &c, Wide *sums) const {
    constexpr int fraction = SMALL ? 13 : 25;
    if (!finite || !row.finite) return false;
    Integers bits;
    std::memcpy(&bits, &c, sizeof bits);
    bits = (bits >> 23 & 0xff) - 127;
    Integers largest = c == 0 ? Integers{} + kNothing : bits < -126 ? Integers{} - 126 : bits;
    Floats products[32];
    for (unsigned i = 0; i < k; ++i) {
      products[i] = static_cast<float>(row.value[i]) * value[i];
      const Integers own = row.exponent[i] + exponent[i];
      largest = own > largest ? own : largest;
    }
    const Integers far = largest > 100 | largest < -90;
    for (unsigned q = 0; q < 8; ++q)
      if (far[q]) return false;
    const Integers up = (fraction - largest + 127) << 23, down = (largest - fraction + 127) << 23;
    Floats scale, back;
    std::memcpy(&scale, &up, sizeof up), std::memcpy(&back, &down, sizeof down);
    Integers half[2] = {__builtin_convertvector(c * scale, Integers), Integers{}};  // below 2^31
    for (unsigned i = 0; i < k; ++i)
      half[i / 8 % 2] += __builtin_convertvector(products[i] * scale, Integers);
    *sums = (__builtin_convertvector(half[0], Wide) + __builtin_convertvector(half[1], Wide)) *
            __builtin_convertvector(back, Wide);
    return true;
  }
  // Toward zero, to floats of so many bits of mantissa.
  static Floats cut(const Wide &sums, int mantissa) {
    Bits bits;
    std::memcpy(&bits, &sums, sizeof bits);
    bits &= ~((1ll << (52 - mantissa)) - 1);
    Wide shorter;
    std::memcpy(&shorter, &bits, sizeof shorter);
    return __builtin_convertvector(shorter, Floats);
  }
};

template <bool SMALL>
void multiply_eight(const Product &p, const Factors &row, const Factors *columns,
                    const Eight &eight, std::uint32_t *d) {
  const Format of_d = p.d == kHalf ? kHalf : kFloat;
  Eight::Floats c = {};
  if (p.adds)
    for (unsigned q = 0; q < 8; ++q) c[q] = static_cast<float>(value_of(of_d, d[q]));
  Eight::Wide sums;
  if (!eight.add<SMALL>(row, p.k, c, &sums)) {
    for (unsigned q = 0; q < 8; ++q) d[q] = dot(row, columns[q], p.k, c[q], p);
  } else if (p.d == kHalf) {
    for (unsigned q = 0; q < 8; ++q) d[q] = half_bits(sums[q]);
  } else {
    const Eight::Floats results = Eight::cut(sums, SMALL ? 13 : 23);
    std::memcpy(d, &results, sizeof results);
  }
}

#ifdef KW_AVX2
#pragma GCC pop_options
#endif

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
  const auto eights = std::make_unique<Eight[]>(p.n / 8);
  for (unsigned q = 0; q < p.n; q += 8) eights[q / 8].take(&columns[q], p.k);
  const auto each = bits_of(p.a) == 8 ? multiply_eight<true> : multiply_eight<false>;
  for (unsigned r = 0; r < 64; ++r) {
    Factors row;
    take(row, t.a[r], p.k, p.a, p.negates_a);
    for (unsigned q = 0; q < p.n; q += 8) each(p, row, &columns[q], eights[q / 8], t.d[r] + q);
  }
}

}  // namespace kw::emulator
