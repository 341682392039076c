// Replaces NVIDIA's header of the same name: each thread of the group copies its share
// asynchronously, and `wait` completes the copies of all.
#pragma once
#include <cooperative_groups.h>

namespace cooperative_groups {

template <typename Group>
__forceinline__ void memcpy_async(const Group &group, void *to, const void *from, size_t bytes) {
  const size_t each =
      reinterpret_cast<size_t>(to) % 16 || reinterpret_cast<size_t>(from) % 16 ? 4 : 16;
  for (size_t i = group.thread_rank() * each; i < bytes; i += group.size() * each) {
    const size_t left = bytes - i < each ? bytes - i : each;
    kw_async_copy(static_cast<char *>(to) + i, static_cast<const char *>(from) + i,
                  static_cast<unsigned>(left), static_cast<unsigned>(left));
  }
  kw_async_commit();
}
template <typename Group, typename To, typename ToLayout, typename From, typename FromLayout>
__forceinline__ void memcpy_async(const Group &group, To *to, const ToLayout &to_count,
                                  const From *from, const FromLayout &from_count) {
  const size_t a = to_count, b = from_count;
  memcpy_async(group, static_cast<void *>(to), static_cast<const void *>(from),
               (a < b ? a : b) * sizeof(To));
}
template <unsigned STAGES, typename Group> __forceinline__ void wait_prior(const Group &group) {
  kw_async_wait(STAGES);
  group.sync();
}
template <typename Group> __forceinline__ void wait(const Group &group) {
  kw_async_wait(0);
  group.sync();
}

}  // namespace cooperative_groups
