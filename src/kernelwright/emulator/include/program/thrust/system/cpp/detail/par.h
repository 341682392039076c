// Replaces thrust's header of the same name: its policy takes streams, as that of CUDA does. The
// algorithms run on the host when they are called.
#pragma once
#include <thrust/detail/allocator_aware_execution_policy.h>
#include <thrust/system/cpp/detail/execution_policy.h>

THRUST_NAMESPACE_BEGIN
namespace system::cpp {
namespace detail {
struct par_t : execution_policy<par_t>,
               thrust::detail::allocator_aware_execution_policy<
                   thrust::system::cpp::detail::execution_policy> {
  constexpr par_t() = default;
  const par_t &on(cudaStream_t) const { return *this; }
};
}  // namespace detail
inline constexpr detail::par_t par;
}  // namespace system::cpp
namespace cpp {
using thrust::system::cpp::par;
}
THRUST_NAMESPACE_END
