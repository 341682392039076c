// The rounding of an H200's tensor cores, as measured by tools/mma_probe.cu: products are exact; a
// group of them and the accumulator are aligned to the largest exponent (for a product, the sum of
// its factors' exponents), each is truncated kExtra bits below a float's last bit, and they are
// added exactly; the sum is truncated to a float. A 16-bit result is rounded from it to nearest
// even.
#include "matrices.h"

#include <algorithm>

namespace kw::ptx {
namespace {

constexpr int kExtra = 2;
constexpr Type kFloat = {'f', 32, false};

// Products that are added to the accumulator at once.
int group(Type a) { return a.kind == 't' ? 8 : 16; }

// 8-bit numbers are converted to halves, which are multiplied in two products of 16: of each four,
// first the first two and then the last two. The accumulator is added at the end, as for floats.
int place(int k) { return k % 4 / 2 * 16 + k / 4 * 2 + k % 2; }

float truncated(double x) {
  float nearest = static_cast<float>(x);
  if (std::isinf(nearest)) return nearest;
  if (std::fabs(x) >= 0x1p128) return std::copysign(INFINITY, nearest);
  if (std::fabs(double(nearest)) > std::fabs(x)) nearest = std::nextafterf(nearest, 0);
  return nearest;
}

constexpr int kNothing = -10000;

// The exponent of a number as stored: denormals have that of the smallest normal number.
int exponent_of(double x, Type t) {
  const bool half = t.kind == '4' || t.kind == '5' || (t.kind == 'f' && t.bits == 16);
  const int least = half ? -14 : -126;  // 8-bit numbers are multiplied as halves
  return std::max(std::ilogb(x), least);
}

// x without its part below 2^exponent.
double cut(double x, int exponent) {
  const double scaled = std::ldexp(x, -exponent);
  return std::ldexp(std::trunc(scaled), exponent);
}

double value_of(Type t, u64 bits) {
  if (t.kind == 't') bits &= ~u64(0x1fff);  // the tensor core reads 19 bits
  return number(t, bits);
}

}  // namespace

u64 dot(const double *x, const double *y, int n, double c, Type a, Type d) {
  bool special = !std::isfinite(c);
  double plain = c;
  int largest = c != 0 && std::isfinite(c) ? exponent_of(c, kFloat) : kNothing;
  for (int i = 0; i < n; ++i) {
    const double product = x[i] * y[i];
    special |= !std::isfinite(product);
    plain += product;
    if (product != 0 && std::isfinite(product))
      largest = std::max(largest, exponent_of(x[i], a) + exponent_of(y[i], a));
  }
  if (special) {
    if (std::isnan(plain)) return d.bits == 16 ? 0x7fff : 0x7fffffffu;
    return bits_of_number(d, plain);
  }
  if (largest == kNothing) return bits_of_number(d, std::signbit(plain) ? -0.0 : 0.0);
  const int grid = std::max(largest, -126) - 23 - kExtra;
  double sum = cut(c, grid);
  for (int i = 0; i < n; ++i) sum += cut(x[i] * y[i], grid);
  if (sum == 0) sum = 0.0;
  return bits_of_number(d, truncated(sum));
}

void multiply(Tile &t, Type a, Type b, Type c, Type d, bool saturate) {
  static thread_local double x[16][64], y[8][64];
  if (!a.floating() && a.kind != '4' && a.kind != '5') {
    const auto integer = [](Type type, u64 bits) {
      return type.kind == 's' ? extended(bits, type.bits) : static_cast<std::int64_t>(bits);
    };
    for (int r = 0; r < 16; ++r)
      for (int q = 0; q < 8; ++q) {
        std::int64_t sum = extended(t.c[r][q], 32);
        for (int k = 0; k < t.k; ++k) sum += integer(a, t.a[r][k]) * integer(b, t.b[k][q]);
        if (saturate) sum = std::clamp<std::int64_t>(sum, INT32_MIN, INT32_MAX);
        t.c[r][q] = masked(sum, 32);
      }
    return;
  }
  const bool small = a.bits == 8;
  for (int k = 0; k < t.k; ++k) {
    const int at = small ? place(k) : k;
    for (int r = 0; r < 16; ++r) x[r][at] = value_of(a, t.a[r][k]);
    for (int q = 0; q < 8; ++q) y[q][at] = value_of(b, t.b[k][q]);
  }
  const int step = std::min(group(a), t.k);
  for (int r = 0; r < 16; ++r)
    for (int q = 0; q < 8; ++q) {
      const double before = number(c, t.c[r][q]);
      double sum = small ? 0 : before;
      for (int k = 0; k < t.k; k += step) {
        const Type own = small || k + step < t.k ? kFloat : d;
        t.c[r][q] = dot(x[r] + k, y[q] + k, step, sum, a, own);
        sum = number(own, t.c[r][q]);
      }
      if (small) t.c[r][q] = bits_of_number(d, static_cast<float>(sum + before));
    }
}

}  // namespace kw::ptx
