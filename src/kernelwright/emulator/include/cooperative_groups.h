// Replaces NVIDIA's header of the same name: blocks, tiles of a warp, coalesced lanes, the grid of
// a cooperative launch, clusters. Tiles of more than a warp are not emulated.
#pragma once

namespace cooperative_groups {

// Any group; its kind is known at run time.
class thread_group {
 public:
  enum Kind : unsigned { kBlock, kLanes, kGrid, kCluster };
  __forceinline__ void sync(KW_CALL) const;
  unsigned long long size() const;
  unsigned long long num_threads() const { return size(); }
  unsigned long long thread_rank() const;
  bool is_valid() const { return true; }

 protected:
  explicit thread_group(Kind kind, unsigned mask = 0) : kind_(kind), mask_(mask) {}
  Kind kind_;
  unsigned mask_;  // of its lanes
};

class thread_block : public thread_group {
 public:
  thread_block() : thread_group(kBlock) {}
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
  KW_BUILT_IN void sync(KW_CALL) { __syncthreads(kw_call); }
  KW_BUILT_IN int barrier_arrive() { return 0; }
  KW_BUILT_IN void barrier_wait(int = 0, KW_CALL) { __syncthreads(kw_call); }
};
KW_BUILT_IN thread_block this_thread_block() { return {}; }

// Common to tiles and coalesced groups: lanes of one warp, given by a mask.
class lanes_of_warp : public thread_group {
 public:
  explicit lanes_of_warp(unsigned mask) : thread_group(kLanes, mask) {}
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
  // The value of the group's lane `rank`; if there is none, the lane's own value.
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
  template <typename T> __forceinline__ T shfl_xor(T value, unsigned other) const {
    return shfl(value, thread_rank() ^ other);
  }
  unsigned mask() const { return mask_; }

 protected:
  unsigned lane_of(unsigned rank) const {
    return rank < size() ? __fns(mask_, 0, static_cast<int>(rank) + 1) : kw::emulator::lane();
  }
  // Converts bits of lanes to bits of ranks.
  unsigned packed(unsigned lanes) const {
    unsigned ranks = 0, rank = 0;
    for (unsigned left = mask_; left; left &= left - 1, ++rank)
      if (lanes >> __builtin_ctz(left) & 1) ranks |= 1u << rank;
    return ranks;
  }
};

class coalesced_group : public lanes_of_warp {
 public:
  using lanes_of_warp::lanes_of_warp;
  // A part of a group that was divided: its number and the number of parts.
  coalesced_group(unsigned mask, unsigned part, unsigned parts)
      : lanes_of_warp(mask), part_(part), parts_(parts) {}
  unsigned meta_group_rank() const { return part_; }
  unsigned meta_group_size() const { return parts_; }

 private:
  unsigned part_ = 0, parts_ = 1;
};
KW_BUILT_IN coalesced_group coalesced_threads() { return coalesced_group(__activemask()); }

template <unsigned SIZE, typename Parent = void> class thread_block_tile;

template <unsigned SIZE> class thread_block_tile<SIZE, void> : public lanes_of_warp {
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
// A tile with a parent type is also a tile without one.
template <unsigned SIZE, typename Parent>
class thread_block_tile : public thread_block_tile<SIZE, void> {
 public:
  using Tile = thread_block_tile<SIZE, void>;
  static unsigned meta_group_rank() {
    if constexpr (std::is_same_v<Parent, thread_block>)
      return Tile::meta_group_rank();
    else
      return Parent::thread_rank() / SIZE;
  }
  static unsigned meta_group_size() {
    if constexpr (std::is_same_v<Parent, thread_block>)
      return Tile::meta_group_size();
    else
      return Parent::size() / SIZE;
  }
};
template <unsigned SIZE, typename Parent>
KW_BUILT_IN thread_block_tile<SIZE, Parent> tiled_partition(const Parent &) {
  return {};
}
// A tile whose size is known at run time.
template <typename Parent>
KW_BUILT_IN coalesced_group tiled_partition(const Parent &, unsigned size) {
  const unsigned first = kw::emulator::lane() / size * size;
  const unsigned all = size >= 32 ? 0xffffffffu : (1u << size) - 1;
  return {all << first, thread_block::thread_rank() / size,
          (thread_block::num_threads() + size - 1) / size};
}
template <typename Label>
KW_BUILT_IN coalesced_group labeled_partition(const lanes_of_warp &group, Label label) {
  return coalesced_group(__match_any_sync(group.mask(), label));
}
KW_BUILT_IN coalesced_group binary_partition(const lanes_of_warp &group, bool which) {
  const unsigned yes = __ballot_sync(group.mask(), which);
  return coalesced_group(which ? yes : group.mask() & ~yes, which, 2);
}

// All blocks of a cooperative launch; they run together, as the blocks of a cluster do.
class grid_group : public thread_group {
 public:
  grid_group() : thread_group(kGrid) {}
  static unsigned long long num_blocks() {
    const auto g = gridDim;
    return 1ull * g.x * g.y * g.z;
  }
  static unsigned long long block_rank() {
    const auto b = blockIdx;
    const auto g = gridDim;
    return b.x + g.x * (b.y + 1ull * g.y * b.z);
  }
  static unsigned long long size() { return num_blocks() * thread_block::num_threads(); }
  static unsigned long long num_threads() { return size(); }
  static unsigned long long thread_rank() {
    return block_rank() * thread_block::num_threads() + thread_block::thread_rank();
  }
  static dim3 dim_blocks() {
    const auto g = gridDim;
    return {g.x, g.y, g.z};
  }
  static dim3 group_dim() { return dim_blocks(); }
  static dim3 block_index() { return thread_block::group_index(); }
  static bool is_valid() { return kw_current->block->cluster == num_blocks(); }
  KW_BUILT_IN void sync() {
    if (!is_valid()) kw_fail("grid.sync() in a launch that is not cooperative");
    kw::emulator::cluster_arrive();
    kw::emulator::cluster_wait();
  }
};
KW_BUILT_IN grid_group this_grid() { return {}; }

class cluster_group : public thread_group {
 public:
  cluster_group() : thread_group(kCluster) {}
  static unsigned block_rank() { return kw_cluster_rank(); }
  static unsigned num_blocks() { return kw_current->block->cluster; }
  static dim3 dim_blocks() { return {num_blocks(), 1, 1}; }
  static dim3 block_index() { return {block_rank(), 0, 0}; }
  static unsigned num_threads() { return num_blocks() * thread_block::num_threads(); }
  static unsigned size() { return num_threads(); }
  static unsigned thread_rank() {
    return block_rank() * thread_block::num_threads() + thread_block::thread_rank();
  }
  KW_BUILT_IN void sync() {
    kw::emulator::cluster_arrive();
    kw::emulator::cluster_wait();
  }
  KW_BUILT_IN int barrier_arrive() {
    kw::emulator::cluster_arrive();
    return 0;
  }
  KW_BUILT_IN void barrier_wait(int = 0) { kw::emulator::cluster_wait(); }
  // The same variable in the shared memory of block `rank`.
  template <typename T> KW_BUILT_IN T *map_shared_rank(T *p, unsigned rank) {
    return static_cast<T *>(kw_map_shared(p, rank));
  }
};
KW_BUILT_IN cluster_group this_cluster() { return {}; }

__forceinline__ void thread_group::sync(const void *call) const {
  if (kind_ == kLanes)
    __syncwarp(mask_);
  else if (kind_ == kBlock)
    __syncthreads(call);
  else
    cluster_group::sync();
}
inline unsigned long long thread_group::size() const {
  return kind_ == kLanes   ? static_cast<unsigned>(__popc(mask_))
         : kind_ == kBlock ? thread_block::size()
         : kind_ == kGrid  ? grid_group::size()
                           : cluster_group::size();
}
inline unsigned long long thread_group::thread_rank() const {
  return kind_ == kLanes   ? __popc(mask_ & ((1u << kw::emulator::lane()) - 1))
         : kind_ == kBlock ? thread_block::thread_rank()
         : kind_ == kGrid  ? grid_group::thread_rank()
                           : cluster_group::thread_rank();
}

template <typename Group> KW_BUILT_IN void sync(const Group &group) { group.sync(); }
KW_BUILT_IN void sync(const thread_block &, KW_CALL) { __syncthreads(kw_call); }
template <typename Group> KW_BUILT_IN unsigned thread_rank(const Group &group) {
  return static_cast<unsigned>(group.thread_rank());
}
template <typename Group> KW_BUILT_IN unsigned group_size(const Group &group) {
  return static_cast<unsigned>(group.size());
}
template <typename Group, typename F> KW_BUILT_IN void invoke_one(const Group &group, F f) {
  if (group.thread_rank() == 0) f();
}

}  // namespace cooperative_groups
