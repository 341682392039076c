// What the kernels share that make runs of positions, and those that work along runs.
#pragma once

namespace kw {

// Counters of a call: positions that have a place, runs that are listed, pieces of runs, blocks
// that have counted.
enum { kPlaced, kListed, kPieces, kArrived };

// A row's bucket: how many positions it has, then the first kShort of them: 64 bytes.
constexpr int kShort = 15;
struct alignas(64) Bucket {
  int count, positions[kShort];
};

}  // namespace kw
