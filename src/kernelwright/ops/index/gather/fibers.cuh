// A tensor (lead, n, c) whose elements along the middle dimension are selected by an index (lead,
// m, c).
#pragma once
#include "../../layout/permute_copy/places.cuh"

namespace kw {

struct Fibers {
  long long n, m, c;               // elements
  long long stride, index_stride;  // between rows of c elements of the tensor, and of the index
};

// The memory position of index position p: its row and column, and row 0 of its fiber in the
// tensor.
struct Position {
  long long row, column, fiber;

  __device__ __forceinline__ Position(const Fibers &f, long long p) {
    column = divide(p, f.c);
    row = p;
    divide(p, f.m);
    fiber = p * f.n;
  }
};

// The row of the tensor that an index selects.
__device__ __forceinline__ long long named_row(const Fibers &f, const Position &at,
                                               long long number) {
  assert(number >= 0 && number < f.n && "index: out of range");
  return at.fiber + number;
}

}  // namespace kw
