// What thrust's headers declare when CUDA is its device system: thrust::device, thrust::cuda::par.
// Here the device system is C++: they name its policies, and a stream has no effect.
#pragma once
#include <chrono>
#include <thrust/execution_policy.h>
#include <thrust/host_vector.h>
#include <thrust/random.h>
#include <thrust/system/cpp/memory.h>
#include <thrust/system/cpp/vector.h>

THRUST_NAMESPACE_BEGIN
// Base classes and functors that CUDA 13 has removed.
template <typename A, typename R> struct unary_function {
  using argument_type = A;
  using result_type = R;
};
template <typename A, typename B, typename R> struct binary_function {
  using first_argument_type = A;
  using second_argument_type = B;
  using result_type = R;
};
template <typename T = void> struct identity {
  const T &operator()(const T &x) const { return x; }
};
template <> struct identity<void> {
  template <typename T> T &&operator()(T &&x) const { return static_cast<T &&>(x); }
};

namespace random {
namespace experimental {
using thrust::random::normal_distribution;
}
}  // namespace random

namespace system {
namespace cuda {
using namespace thrust::system::cpp;
inline constexpr thrust::system::cpp::detail::par_t par, par_nosync;
}  // namespace cuda
}  // namespace system
namespace cuda {
using namespace thrust::system::cuda;
using thrust::system::cuda::par;
using thrust::system::cuda::par_nosync;
}  // namespace cuda
THRUST_NAMESPACE_END
