// wgmma with 80 columns: tiles of 80 keys leave room for heads of 256 elements.
#pragma once
#include "hopper/operands.cuh"

namespace kw {

#define KW_EIGHT(i)                                                                           \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), \
      "+f"(d[i + 6]), "+f"(d[i + 7])
#define KW_WGMMA_80(TYPE, NAME)                                                                \
  template <> struct Wgmma<TYPE, 80> {                                                         \
    template <bool A_K_MAJOR, bool B_K_MAJOR>                                                  \
    static __device__ __forceinline__ void mma(float (&d)[40], unsigned long long a,           \
                                               unsigned long long b, int add) {                \
      asm volatile(                                                                            \
          "{\n.reg .pred p;\nsetp.ne.b32 p, %42, 0;\n"                                         \
          "wgmma.mma_async.sync.aligned.m64n80k16.f32." NAME "." NAME                          \
          " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, " \
          "%18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, "   \
          "%34, %35, %36, %37, %38, %39}, %40, %41, p, 1, 1, %43, %44;\n}"                     \
          : KW_EIGHT(0), KW_EIGHT(8), KW_EIGHT(16), KW_EIGHT(24), KW_EIGHT(32)                 \
          : "l"(a), "l"(b), "r"(add), "n"(!A_K_MAJOR), "n"(!B_K_MAJOR));                       \
    }                                                                                          \
  };
KW_WGMMA_80(__nv_bfloat16, "bf16")
KW_WGMMA_80(__half, "f16")
#undef KW_WGMMA_80
#undef KW_EIGHT

}  // namespace kw
