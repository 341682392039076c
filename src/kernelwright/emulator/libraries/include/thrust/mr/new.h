// Replaces thrust's header of the same name: its vectors allocate device memory.
#pragma once
#include <thrust/mr/memory_resource.h>

THRUST_NAMESPACE_BEGIN
namespace mr {

class new_delete_resource_base : public memory_resource<> {
 public:
  void *do_allocate(std::size_t bytes, std::size_t = THRUST_MR_DEFAULT_ALIGNMENT) override {
    void *p = nullptr;
    cudaMallocManaged(&p, bytes, 1);
    return p;
  }
  void do_deallocate(void *p, std::size_t, std::size_t = THRUST_MR_DEFAULT_ALIGNMENT) override {
    cudaFree(p);
  }
};
class new_delete_resource final : public new_delete_resource_base {};

}  // namespace mr
THRUST_NAMESPACE_END
