// One launch over a list of tensors: their addresses, and the part that each block processes.
#pragma once

namespace kw {

// Converts an address to a pointer to global memory. From a plain integer the compiler could not
// know the memory space, and would emit slower generic loads.
template <typename T> __device__ __forceinline__ T *global_pointer(unsigned long long address) {
#ifdef __CUDA_ARCH__
  return static_cast<T *>(__cvta_global_to_generic(address));
#else
  return reinterpret_cast<T *>(address);
#endif
}

// A part of a list that a block processes: elements `first` to `first + length` of tensor k, which
// has n.
struct Chunk {
  int k, length;
  long long first, n;

  // chunks: result of contract.arithmetic.chunks with `size` elements each; `which`: one of them
  __device__ __forceinline__ Chunk(const int *chunks, const long long *sizes, int size,
                                   unsigned which = blockIdx.x) {
    k = chunks[2 * which];
    n = sizes[k];
    first = (long long)chunks[2 * which + 1] * size;
    length = int(n - first < size ? n - first : size);
  }
};

}  // namespace kw
