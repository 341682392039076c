// Stands for NVIDIA's header of the same name: blocks, tiles of a warp and lanes that came
// together. Groups of more than a block are not emulated.
#pragma once

namespace cooperative_groups {

class thread_block {
 public:
  static unsigned thread_rank() {
    const auto t = threadIdx;
    const auto b = blockDim;
    return t.x + b.x * (t.y + b.y * t.z);
  }
  static unsigned num_threads() {
    const auto b = blockDim;
    return b.x * b.y * b.z;
  }
  static unsigned size() { return num_threads(); }
  static dim3 thread_index() {
    const auto t = threadIdx;
    return {t.x, t.y, t.z};
  }
  static dim3 group_index() {
    const auto b = blockIdx;
    return {b.x, b.y, b.z};
  }
  static dim3 dim_threads() {
    const auto b = blockDim;
    return {b.x, b.y, b.z};
  }
  static dim3 group_dim() { return dim_threads(); }
  KW_BUILT_IN void sync() { __syncthreads(); }
};
KW_BUILT_IN thread_block this_thread_block() { return {}; }

// What a tile and a coalesced group share: lanes of one warp, named by a mask.
class lanes_of_warp {
 public:
  explicit lanes_of_warp(unsigned mask) : mask_(mask) {}
  __forceinline__ void sync() const { __syncwarp(mask_); }
  __forceinline__ int any(int predicate) const { return __any_sync(mask_, predicate); }
  __forceinline__ int all(int predicate) const { return __all_sync(mask_, predicate); }
  __forceinline__ unsigned ballot(int predicate) const {
    return packed(__ballot_sync(mask_, predicate));
  }
  template <typename T> __forceinline__ unsigned match_any(T value) const {
    return packed(__match_any_sync(mask_, value));
  }
  template <typename T> __forceinline__ unsigned match_all(T value, int &same) const {
    return packed(__match_all_sync(mask_, value, &same));
  }
  unsigned num_threads() const { return static_cast<unsigned>(__popc(mask_)); }
  unsigned size() const { return num_threads(); }
  unsigned thread_rank() const {
    return static_cast<unsigned>(__popc(mask_ & ((1u << kw::emulator::lane()) - 1)));
  }
  // The value of the group's lane `rank`; a rank beyond the group reads the lane itself.
  template <typename T> __forceinline__ T shfl(T value, unsigned rank) const {
    return kw::emulator::shuffle(mask_, value, lane_of(rank));
  }
  template <typename T> __forceinline__ T shfl_up(T value, unsigned delta) const {
    const unsigned rank = thread_rank();
    return shfl(value, rank >= delta ? rank - delta : rank);
  }
  template <typename T> __forceinline__ T shfl_down(T value, unsigned delta) const {
    const unsigned rank = thread_rank();
    return shfl(value, rank + delta < size() ? rank + delta : rank);
  }
  unsigned mask() const { return mask_; }

 protected:
  unsigned lane_of(unsigned rank) const {
    return rank < size() ? __fns(mask_, 0, static_cast<int>(rank) + 1) : kw::emulator::lane();
  }
  // Bits of lanes as bits of ranks.
  unsigned packed(unsigned lanes) const {
    unsigned ranks = 0, rank = 0;
    for (unsigned left = mask_; left; left &= left - 1, ++rank)
      if (lanes >> __builtin_ctz(left) & 1) ranks |= 1u << rank;
    return ranks;
  }
  unsigned mask_;
};

class coalesced_group : public lanes_of_warp {
 public:
  using lanes_of_warp::lanes_of_warp;
};
KW_BUILT_IN coalesced_group coalesced_threads() { return coalesced_group(__activemask()); }

template <unsigned SIZE, typename Parent = void> class thread_block_tile : public lanes_of_warp {
  static_assert(SIZE <= 32 && (SIZE & (SIZE - 1)) == 0,
                "the emulator has tiles of up to 32 threads, a power of two");

 public:
  thread_block_tile()
      : lanes_of_warp((SIZE == 32 ? 0xffffffffu : (1u << SIZE % 32) - 1)
                      << (kw::emulator::lane() & ~(SIZE - 1))) {}
  static constexpr unsigned num_threads() { return SIZE; }
  static constexpr unsigned size() { return SIZE; }
  static unsigned thread_rank() { return kw::emulator::lane() % SIZE; }
  static unsigned meta_group_rank() { return thread_block::thread_rank() / SIZE; }
  static unsigned meta_group_size() { return (thread_block::num_threads() + SIZE - 1) / SIZE; }
  template <typename T> __forceinline__ T shfl(T value, int rank) const {
    return __shfl_sync(mask_, value, rank, SIZE);
  }
  template <typename T> __forceinline__ T shfl_up(T value, unsigned delta) const {
    return __shfl_up_sync(mask_, value, delta, SIZE);
  }
  template <typename T> __forceinline__ T shfl_down(T value, unsigned delta) const {
    return __shfl_down_sync(mask_, value, delta, SIZE);
  }
  template <typename T> __forceinline__ T shfl_xor(T value, int other) const {
    return __shfl_xor_sync(mask_, value, other, SIZE);
  }
};
template <unsigned SIZE, typename Parent>
KW_BUILT_IN thread_block_tile<SIZE, Parent> tiled_partition(const Parent &) {
  return {};
}

template <typename Group> KW_BUILT_IN void sync(const Group &group) { group.sync(); }

}  // namespace cooperative_groups
