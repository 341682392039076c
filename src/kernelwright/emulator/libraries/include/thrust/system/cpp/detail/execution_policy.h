// Adds streams to the policy of thrust's C++ system, as that of CUDA has them. The algorithms run
// on the host when they are called. thrust defines its policy here since CUDA 13.2, and in par.h
// before; in both cases it gets another name.
#pragma once
#include <thrust/detail/allocator_aware_execution_policy.h>
#include <thrust/system/detail/sequential/execution_policy.h>
#define par_t plain_par_t
#define par plain_par
#include_next <thrust/system/cpp/detail/execution_policy.h>
#undef par_t
#undef par

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
