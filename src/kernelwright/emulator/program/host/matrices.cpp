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

// The exponent of a number that is not 0.
int exponent_of(double x) { return static_cast<int>(to_bits(x) >> 52 & 0x7ff) - 1023; }
// The same as stored: denormals have that of the smallest normal number.
int exponent_of(double x, Type t) {
  const bool half = t.kind == '4' || t.kind == '5' || (t.kind == 'f' && t.bits == 16);
  const int least = half ? -14 : -126;  // 8-bit numbers are multiplied as halves
  return std::max(exponent_of(x), least);
}
double power(int exponent) { return from_bits<double>(u64(exponent + 1023) << 52); }

double value_of(Type t, u64 bits) {
  if (t.kind == 't') bits &= ~u64(0x1fff);  // the tensor core reads 19 bits
  return number(t, bits);
}

// Numbers of a row of A or a column of B, with their exponents; 0 has such a small one that no
// product with it is the largest.
struct Factors {
  double value[64];
  int exponent[64];
  bool finite = true;
  void set(int at, double x, Type t) {
    value[at] = x;
    exponent[at] = x == 0 ? 2 * kNothing : exponent_of(x, t);
    finite &= std::isfinite(x);
  }
};

// NaN has one form.
u64 bits_of_result(Type d, double x) {
  if (std::isnan(x)) return d.bits == 16 ? 0x7fff : 0x7fffffffu;
  return bits_of_number(d, x);
}

// A product that is infinite or NaN, or 0 with a sign.
u64 plain(const double *x, const double *y, int n, double c, Type d) {
  for (int i = 0; i < n; ++i) c += x[i] * y[i];
  return bits_of_result(d, c);
}

// c + the sum of N products x[at + i] * y[at + i], as bits of type d.
template <int N> u64 dot(const Factors &x, const Factors &y, int at, double c, Type d) {
  const double *const a = x.value + at, *const b = y.value + at;
  if (!x.finite || !y.finite || !std::isfinite(c)) {
    bool special = !std::isfinite(c);
    for (int i = 0; i < N; ++i) special |= !std::isfinite(a[i] * b[i]);
    if (special) return plain(a, b, N, c, d);
  }
  int largest = c != 0 ? exponent_of(c, kFloat) : kNothing;
  for (int i = 0; i < N; ++i) {
    const int own = x.exponent[at + i] + y.exponent[at + i];
    largest = own > largest ? own : largest;
  }
  if (largest == kNothing) return plain(a, b, N, c, d);
  // In units of the grid, each number is less than 2^27: its part below 1 is dropped.
  const int grid = std::max(largest, -126) - 23 - kExtra;
  const double scale = power(-grid);
  std::int64_t sum = static_cast<int>(c * scale);
  for (int i = 0; i < N; ++i) sum += static_cast<int>(a[i] * b[i] * scale);
  return bits_of_number(d, truncated(static_cast<double>(sum) * power(grid)));
}

u64 dot(const Factors &x, const Factors &y, int at, int n, double c, Type d) {
  return n == 16  ? dot<16>(x, y, at, c, d)
         : n == 8 ? dot<8>(x, y, at, c, d)
                  : dot<4>(x, y, at, c, d);
}

}  // namespace

void multiply(Tile &t, Type a, Type b, Type c, Type d, bool saturate) {
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
  Factors x[16], y[8];
  for (int k = 0; k < t.k; ++k) {
    const int at = small ? place(k) : k;
    for (int r = 0; r < 16; ++r) x[r].set(at, value_of(a, t.a[r][k]), a);
    for (int q = 0; q < 8; ++q) y[q].set(at, value_of(b, t.b[k][q]), a);
  }
  const int step = std::min(group(a), t.k);
  for (int r = 0; r < 16; ++r)
    for (int q = 0; q < 8; ++q) {
      const double before = number(c, t.c[r][q]);
      double sum = small ? 0 : before;
      for (int k = 0; k < t.k; k += step) {
        const Type own = small || k + step < t.k ? kFloat : d;
        t.c[r][q] = dot(x[r], y[q], k, step, sum, own);
        sum = number(own, t.c[r][q]);
      }
      if (small) t.c[r][q] = bits_of_result(d, static_cast<float>(sum + before));
    }
}

}  // namespace kw::ptx
