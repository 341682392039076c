// Equal shares of the keys of all sequences for the blocks of a launch (stream-K), whatever the
// lengths of the sequences.
//
// A sequence has as many items as sets of heads and of queries, and all of them have as many steps
// as its tokens need. All steps, in the order of sequences and their items, are cut into shares of
// equal length, one for each block. A piece is what a share has of an item.
#pragma once
#include "kw/reduce.cuh"

namespace split {

// Sequences with of[b] + more tokens.
template <typename L> struct Lengths {
  const L *of;
  int count, more;

  __device__ __forceinline__ int tokens(int b) const { return static_cast<int>(of[b]) + more; }
};

struct Piece {
  int sequence, item, tokens;
  int begin, end, steps;  // of the item's steps, those of the piece
  int parts, part;        // blocks that have pieces of the item; this one's number
  __device__ __forceinline__ bool whole() const { return parts == 1; }
};

template <class LENGTHS, int TOKENS> struct Schedule {
  const LENGTHS &lengths;
  int items, share, at, end;
  int sequence = 0, start = 0;  // whose first step is number `start` of all

  // A sequence without tokens has a step too, which writes its result.
  __device__ __forceinline__ int steps(int b) const {
    return max(1, (lengths.tokens(b) + TOKENS - 1) / TOKENS);
  }

  // Every warp finds the block's share for itself, without a barrier.
  __device__ __forceinline__ Schedule(const LENGTHS &lengths, int items)
      : lengths(lengths), items(items) {
    const int lane = threadIdx.x % 32;
    int all = 0;
    for (int b = lane; b < lengths.count; b += 32) all += steps(b);
    all = kw::warp_reduce<kw::Sum, 32>(all) * items;
    share = (all + gridDim.x - 1) / gridDim.x;
    at = min(static_cast<int>(blockIdx.x) * share, all);
    end = min(at + share, all);
    if (at == end) return;
    for (int first = 0;; first += 32) {
      const int mine = first + lane < lengths.count ? steps(first + lane) * items : 0;
      int to = mine;
#pragma unroll
      for (int i = 1; i < 32; i *= 2) {
        const int before = __shfl_up_sync(0xffffffffu, to, i);
        if (lane >= i) to += before;
      }
      const unsigned behind = __ballot_sync(0xffffffffu, at < start + to);
      const int found = behind ? __ffs(static_cast<int>(behind)) - 1 : 31;
      start += __shfl_sync(0xffffffffu, behind ? to - mine : to, found);
      sequence = first + found;
      if (behind) return;
    }
  }
  __device__ __forceinline__ bool done() const { return at == end; }
  // The next piece.
  __device__ __forceinline__ Piece next() {
    Piece p;
    p.sequence = sequence, p.tokens = lengths.tokens(sequence), p.steps = steps(sequence);
    p.item = (at - start) / p.steps;
    const int first = start + p.item * p.steps, last = first + p.steps;
    p.begin = at - first;
    at = min(end, last);
    p.end = at - first;
    const int from = first / share;
    p.part = static_cast<int>(blockIdx.x) - from;
    p.parts = (last - 1) / share - from + 1;
    if (at == start + items * p.steps) start = at, sequence++;
    return p;
  }
};

}  // namespace split
