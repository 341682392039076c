// Products of small matrices as tensor cores compute them.
#pragma once
#include "ptx.h"

namespace kw::ptx {

// A of 16 x k, B of k x 8, C of 16 x 8, as bits of their types. The product replaces C.
struct Tile {
  int k;
  u64 a[16][64], b[64][8], c[16][8];
};
void multiply(Tile &, Type a, Type b, Type c, Type d, bool saturate);
// The same for A of m x k, B of k x n and C of m x n elements, row by row; n is at most 32.
void multiply(int m, int n, int k, const unsigned *a, const unsigned *b, unsigned *c, Type a_type,
              Type b_type, Type c_type, Type d_type);

}  // namespace kw::ptx
