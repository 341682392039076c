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

}  // namespace kw::ptx
