// Replaces NVIDIA's header of the same name.
#pragma once
#include <cooperative_groups/reduce.h>

namespace cooperative_groups {

template <typename Group, typename T, typename Op = plus<T>>
__forceinline__ T inclusive_scan(const Group &group, T value, Op op = {}) {
  for (unsigned step = 1; step < group.size(); step *= 2) {
    const T before = group.shfl_up(value, step);
    if (group.thread_rank() >= step) value = op(before, value);
  }
  return value;
}
template <typename Group, typename T, typename Op = plus<T>>
__forceinline__ T exclusive_scan(const Group &group, T value, Op op = {}) {
  const T before = group.shfl_up(inclusive_scan(group, value, op), 1);
  return group.thread_rank() ? before : T{};
}

}  // namespace cooperative_groups
