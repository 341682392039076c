// Replaces NVIDIA's header of the same name.
#pragma once
#include <cooperative_groups.h>

namespace cooperative_groups {

#define KW_OPERATION(name, ...)                                                \
  template <typename T = void> struct name {                                   \
    T operator()(T a, T b) const { return __VA_ARGS__; }                       \
  };                                                                           \
  template <> struct name<void> {                                              \
    template <typename T> T operator()(T a, T b) const { return __VA_ARGS__; } \
  };
KW_OPERATION(plus, a + b)
KW_OPERATION(less, b < a ? b : a)
KW_OPERATION(greater, a < b ? b : a)
KW_OPERATION(bit_and, a &b)
KW_OPERATION(bit_or, a | b)
KW_OPERATION(bit_xor, a ^ b)
#undef KW_OPERATION

// By a butterfly if the group is a tile, otherwise in the order of ranks; every lane gets the same.
template <typename Group, typename T, typename Op>
__forceinline__ T reduce(const Group &group, T value, Op op) {
  const unsigned n = group.size();
  if ((n & (n - 1)) == 0) {
    for (unsigned step = n / 2; step > 0; step /= 2)
      value = op(value, group.shfl(value, group.thread_rank() ^ step));
    return value;
  }
  T total = group.shfl(value, 0);
  for (unsigned rank = 1; rank < n; ++rank) total = op(total, group.shfl(value, rank));
  return total;
}
template <typename Group, typename T, typename Op>
__forceinline__ void reduce_update_async(const Group &group, T *to, T value, Op op) {
  const T total = reduce(group, value, op);
  if (group.thread_rank() == 0) kw::emulator::atomically(to, [=](T old) { return op(old, total); });
}
template <typename Group, typename T, typename Op>
__forceinline__ void reduce_store_async(const Group &group, T *to, T value, Op op) {
  const T total = reduce(group, value, op);
  if (group.thread_rank() == 0) *to = total;
}

}  // namespace cooperative_groups
