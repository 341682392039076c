// Tensor cores (compute capability 8.0), one function per instruction. On a CPU the lanes of a warp
// exchange the data that the instruction would use.
#pragma once
#include "kw/types.cuh"

namespace matmul {

template <typename T> constexpr bool kIsHalf = false;
template <> constexpr bool kIsHalf<__half> = true;
constexpr unsigned kAllLanes = 0xffffffffu;

// Copies the first `bytes` of 16 bytes to shared memory, and writes zeros for the rest.
__device__ __forceinline__ void copy_async_16(char *shared, const void *from, int bytes) {
#ifdef __CUDA_ARCH__
  const auto to = static_cast<unsigned>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes)
               : "memory");
#else
  uint4 unit = {};
  memcpy(&unit, from, bytes);
  *reinterpret_cast<uint4 *>(shared) = unit;
#endif
}

// Loads four matrices of 8 x 8 16-bit elements: lane l gives the address of row l % 8 of matrix l /
// 8, and receives elements 2 (l % 4) and the next of row l / 4 of each; of column l / 4 if TURNED.
template <bool TURNED>
__device__ __forceinline__ void load_matrices(unsigned (&x)[4], const char *shared) {
#ifdef __CUDA_ARCH__
  const auto at = static_cast<unsigned>(__cvta_generic_to_shared(shared));
  if constexpr (TURNED)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"(at)
                 : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"(at)
                 : "memory");
#else
  const int lane = threadIdx.x % 32;
  for (int i = 0; i < 4; i++) {
    unsigned short pair[2];
    for (int j = 0; j < 2; j++) {
      const int row = TURNED ? lane % 4 * 2 + j : lane / 4,
                col = TURNED ? lane / 4 : lane % 4 * 2 + j;
      const auto line =
          __shfl_sync(kAllLanes, reinterpret_cast<unsigned long long>(shared), 8 * i + row);
      pair[j] = reinterpret_cast<const unsigned short *>(line)[col];
    }
    memcpy(&x[i], pair, 4);
  }
#endif
}

#ifndef __CUDA_ARCH__
// Element `i` of the 16-bit values that two registers hold.
template <typename T> float element(unsigned long long registers, int i) {
  T x;
  const auto bits = static_cast<unsigned short>(registers >> 16 * i);
  memcpy(&x, &bits, 2);
  return kw::to_float(x);
}

// The operation of mma.sync: lane l holds rows l / 4 and l / 4 + 8 of a, column l / 4 of b, and of
// the sums columns 2 (l % 4) and the next of those rows.
template <typename T>
void multiply_add_by_lanes(float (&sums)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  const auto both = [](unsigned low, unsigned high) {
    return static_cast<unsigned long long>(high) << 32 | low;
  };
  const int lane = threadIdx.x % 32;
  for (int from = 0; from < 4; from++) {  // lanes with k = 2 from, 2 from + 1, and + 8
    unsigned long long of_a[2], of_b[2];
    for (int j = 0; j < 2; j++) {
      of_a[j] = __shfl_sync(kAllLanes, both(a[j], a[j + 2]), lane / 4 * 4 + from);
      of_b[j] = __shfl_sync(kAllLanes, both(b0, b1), (lane % 4 * 2 + j) * 4 + from);
    }
    for (int i = 0; i < 4; i++)
      for (int s = 0; s < 4; s++)
        sums[s] += element<T>(of_a[s / 2], i) * element<T>(of_b[s % 2], i);
  }
}
#endif

// sums (16 x 8) += a (16 x 16) b (16 x 8)
template <typename T>
__device__ __forceinline__ void multiply_add(float (&sums)[4], const unsigned (&a)[4], unsigned b0,
                                             unsigned b1) {
#ifdef __CUDA_ARCH__
  if constexpr (kIsHalf<T>)
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  else
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
  multiply_add_by_lanes<T>(sums, a, b0, b1);
#endif
}

}  // namespace matmul
