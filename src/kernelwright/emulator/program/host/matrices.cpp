// How an H200's tensor cores round (measured by tools/mma_probe.cu; records/mma.txt holds the bits):
// products are exact; a group of them and the accumulator are aligned to the largest exponent, each
// truncated kExtra bits below a float's last, and added exactly; the sum is truncated to a float.
// A result of 16 bits is rounded from that to nearest even.
#include "matrices.h"

#include <algorithm>

namespace kw::ptx {
namespace {

constexpr int kExtra = 2;

// Products that are added to the accumulator at once.
int group(Type a) { return a.kind == 't' ? 8 : 16; }

float truncated(double x) {
  float nearest = static_cast<float>(x);
  if (std::fabs(double(nearest)) > std::fabs(x)) nearest = std::nextafterf(nearest, 0);
  return nearest;
}

// x without what is smaller than 2^exponent.
double cut(double x, int exponent) {
  const double scaled = std::ldexp(x, -exponent);
  return std::ldexp(std::trunc(scaled), exponent);
}

double value_of(Type t, u64 bits) {
  if (t.kind == 't') bits &= ~u64(0x1fff);  // the tensor core reads 19 bits
  return number(t, bits);
}

}  // namespace

u64 dot(const double *products, int n, double c, Type, Type d) {
  bool special = std::isnan(c) || std::isinf(c);
  double plain = c;
  int largest = -1000;
  const auto see = [&](double x) {
    if (x != 0 && std::isfinite(x)) largest = std::max(largest, std::ilogb(x));
  };
  see(c);
  for (int i = 0; i < n; ++i) {
    special |= !std::isfinite(products[i]);
    plain += products[i];
    see(products[i]);
  }
  if (special) {
    if (std::isnan(plain)) return d.bits == 16 ? 0x7fff : 0x7fffffffu;
    return bits_of_number(d, plain);
  }
  if (largest == -1000) return bits_of_number(d, plain == 0 && !std::signbit(plain) ? 0.0 : plain);
  // the grid that all terms are aligned to; denormal floats have no smaller one
  const int grid = std::max(largest, -126) - 23 - kExtra;
  double sum = cut(c, grid);
  for (int i = 0; i < n; ++i) sum += cut(products[i], grid);
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
  for (int k = 0; k < t.k; ++k) {
    for (int r = 0; r < 16; ++r) x[r][k] = value_of(a, t.a[r][k]);
    for (int q = 0; q < 8; ++q) y[q][k] = value_of(b, t.b[k][q]);
  }
  const int step = std::min(group(a), t.k);
  for (int r = 0; r < 16; ++r)
    for (int q = 0; q < 8; ++q) {
      double sum = number(c, t.c[r][q]);
      for (int k = 0; k < t.k; k += step) {
        double products[64];
        for (int i = 0; i < step; ++i) products[i] = x[r][k + i] * y[q][k + i];
        const bool last = k + step == t.k;
        const Type own = last ? d : Type{'f', 32, false};
        const u64 bits = dot(products, step, sum, a, own);
        if (last)
          t.c[r][q] = bits;
        else
          sum = number(own, bits);
      }
    }
}

}  // namespace kw::ptx
