// Reductions by the tensor memory accelerator: each element of a store is combined with what memory
// holds. Types are numbered as CUtensorMapDataType does.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstring>

#include "tensor_cores.h"

namespace kw::emulator {
namespace {

enum Type : unsigned char {
  kU8,
  kU16,
  kU32,
  kS32,
  kU64,
  kS64,
  kF16,
  kF32,
  kF64,
  kBf16,
  kF32Flushed,
  kTf32Type,
  kTf32Flushed
};
constexpr unsigned kTypeBytes[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4};

template <typename T> T combined(Reduction op, T old, T x) {
  switch (op) {
    case kAdd:
      return old + x;
    case kMin:
      return std::min(old, x);
    case kMax:
      return std::max(old, x);
    default:
      break;
  }
  if constexpr (std::is_integral_v<T>) switch (op) {
      case kInc:
        return old >= x ? 0 : old + 1;
      case kDec:
        return old == 0 || old > x ? x : old - 1;
      case kAnd:
        return old & x;
      case kOr:
        return old | x;
      case kXor:
        return old ^ x;
      default:
        break;
    }
  return x;
}
template <typename T> std::uint64_t combined_bits(Reduction op, std::uint64_t a, std::uint64_t b) {
  T old, x;
  std::memcpy(&old, &a, sizeof old);
  std::memcpy(&x, &b, sizeof x);
  old = combined(op, old, x);
  a = 0;
  std::memcpy(&a, &old, sizeof old);
  return a;
}
float bfloat_value(std::uint16_t bits) {
  const std::uint32_t wide = std::uint32_t(bits) << 16;
  float x;
  std::memcpy(&x, &wide, sizeof x);
  return x;
}
std::uint16_t bfloat_bits(double x) {  // to nearest even
  if (std::isnan(x)) return 0x7fff;
  float nearest = static_cast<float>(x);
  std::uint32_t bits;
  std::memcpy(&bits, &nearest, sizeof bits);
  return static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

std::uint64_t combined_bits(Reduction op, unsigned type, std::uint64_t a, std::uint64_t b) {
  const auto x = static_cast<std::uint16_t>(a), y = static_cast<std::uint16_t>(b);
  switch (type) {
    case kU32:
      return combined_bits<std::uint32_t>(op, a, b);
    case kS32:
      return combined_bits<std::int32_t>(op, a, b);
    case kU64:
      return combined_bits<std::uint64_t>(op, a, b);
    case kS64:
      return combined_bits<std::int64_t>(op, a, b);
    case kF64:
      return combined_bits<double>(op, a, b);
    case kF16:
      return half_bits(combined(op, half_value(x), half_value(y)));
    case kBf16:
      return bfloat_bits(combined<double>(op, bfloat_value(x), bfloat_value(y)));
    default:
      return combined_bits<float>(op, a, b);
  }
}
template <typename Word>
void reduce_word(Reduction op, unsigned type, unsigned char *to, const unsigned char *from) {
  auto *const at = reinterpret_cast<Word *>(to);
  Word x, old = __atomic_load_n(at, __ATOMIC_RELAXED);
  std::memcpy(&x, from, sizeof x);
  while (!__atomic_compare_exchange_n(at, &old, static_cast<Word>(combined_bits(op, type, old, x)),
                                      true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
}
// One element of memory at `to`, with one at `from`.
void reduce(Reduction op, unsigned type, unsigned char *to, const unsigned char *from) {
  switch (kTypeBytes[type]) {
    case 2:
      return reduce_word<std::uint16_t>(op, type, to, from);
    case 4:
      return reduce_word<std::uint32_t>(op, type, to, from);
    case 8:
      return reduce_word<std::uint64_t>(op, type, to, from);
    default:
      kw_fail("a reduction of elements of one byte");
  }
}

}  // namespace
}  // namespace kw::emulator
