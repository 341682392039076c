// Shared by the kernels that build runs of positions and those that work along runs.
#pragma once

namespace kw {

// Counters of a call: positions placed, runs listed, pieces of runs, and blocks that have
// finished.
enum { kPlaced, kListed, kPieces, kArrived };

// A row's bucket, 64 bytes: the number of its positions, then the first kShort of them.
constexpr int kShort = 15;
struct alignas(64) Bucket {
  int count, positions[kShort];
};

}  // namespace kw
