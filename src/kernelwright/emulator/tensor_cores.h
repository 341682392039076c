// wgmma.mma_async: what an instruction multiplies, and its arithmetic on operands that were read.
#pragma once
#include <cstdint>

#include "runtime.h"

namespace kw::emulator {

// The operands of one product as bits of their types: A of 64 x k, B of n x k (its columns one
// after the other), and D of 64 x n, which the product replaces.
struct Tiles {
  std::uint32_t a[64][32], b[256][32], d[64][256];
};
void multiply(const Product &, Tiles &);
double half_value(std::uint32_t bits);
std::uint32_t half_bits(double x);  // to nearest even

// Bits of an element of an operand.
constexpr unsigned bits_of(Format f) {
  return f == kFloat || f == kTf32 || f == kInt32 ? 32 : f == kHalf || f == kBfloat ? 16 : 8;
}

}  // namespace kw::emulator
