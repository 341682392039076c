// What thrust's headers declare when CUDA is its device system: thrust::device, thrust::cuda::par.
// Here the device system is C++, whose policies they stand for; a stream changes nothing.
#pragma once
#include <thrust/execution_policy.h>
#include <thrust/system/cpp/memory.h>
#include <thrust/system/cpp/vector.h>

THRUST_NAMESPACE_BEGIN
namespace system {
namespace cuda {
using namespace thrust::system::cpp;
struct KwPar : thrust::system::cpp::detail::par_t {
  const thrust::system::cpp::detail::par_t &on(cudaStream_t) const { return *this; }
};
inline constexpr KwPar par;
inline constexpr KwPar par_nosync;
}  // namespace cuda
}  // namespace system
namespace cuda {
using namespace thrust::system::cuda;
using thrust::system::cuda::par;
using thrust::system::cuda::par_nosync;
}  // namespace cuda
THRUST_NAMESPACE_END
