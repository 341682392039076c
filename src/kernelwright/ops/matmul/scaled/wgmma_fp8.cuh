// Products of 8-bit floating-point numbers (e4m3) on Hopper's tensor cores: a row of 128 bytes has
// 128 elements along k, an instruction uses 32 of them, and both operands are contiguous along k.
#pragma once
#include "kw/hopper/wgmma.cuh"

namespace kw {

struct E4M3;  // names the type of both operands

#define KW_TEN(t)                                                                                  \
  "%" #t "0, %" #t "1, %" #t "2, %" #t "3, %" #t "4, %" #t "5, %" #t "6, %" #t "7, %" #t "8, %" #t \
  "9, "
#define KW_EIGHT(i)                                                                           \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), \
      "+f"(d[i + 6]), "+f"(d[i + 7])
#define KW_16(i) KW_EIGHT(i), KW_EIGHT(i + 8)
#define KW_WGMMA(N, ADD, OUT, IN, ...)                                                             \
  template <> struct Wgmma<E4M3, N> {                                                              \
    template <bool A_K_MAJOR, bool B_K_MAJOR>                                                      \
    static __device__ __forceinline__ void mma(float (&d)[N / 2], unsigned long long a,            \
                                               unsigned long long b, int add) {                    \
      static_assert(A_K_MAJOR && B_K_MAJOR, "8-bit operands have k contiguous");                   \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " ADD                                         \
                   ", 0;\nwgmma.mma_async.sync.aligned.m64n" #N "k32.f32.e4m3.e4m3 {" OUT "}, " IN \
                   ";\n}"                                                                          \
                   : __VA_ARGS__                                                                   \
                   : "l"(a), "l"(b), "r"(add));                                                    \
    }                                                                                              \
  };
KW_WGMMA(64, "%34", KW_TEN() KW_TEN(1) KW_TEN(2) "%30, %31", "%32, %33, p, 1, 1", KW_16(0),
         KW_16(16))
KW_WGMMA(128, "%66",
         KW_TEN() KW_TEN(1) KW_TEN(2) KW_TEN(3) KW_TEN(4) KW_TEN(5) "%60, %61, %62, %63",
         "%64, %65, p, 1, 1", KW_16(0), KW_16(16), KW_16(32), KW_16(48))
KW_WGMMA(192, "%98",
         KW_TEN() KW_TEN(1) KW_TEN(2) KW_TEN(3) KW_TEN(4) KW_TEN(5) KW_TEN(6) KW_TEN(7)
             KW_TEN(8) "%90, %91, %92, %93, %94, %95",
         "%96, %97, p, 1, 1", KW_16(0), KW_16(16), KW_16(32), KW_16(48), KW_16(64), KW_16(80))
KW_WGMMA(256, "%130",
         KW_TEN() KW_TEN(1) KW_TEN(2) KW_TEN(3) KW_TEN(4) KW_TEN(5) KW_TEN(6) KW_TEN(7) KW_TEN(8)
             KW_TEN(9) KW_TEN(10) KW_TEN(11) "%120, %121, %122, %123, %124, %125, %126, %127",
         "%128, %129, p, 1, 1", KW_16(0), KW_16(16), KW_16(32), KW_16(48), KW_16(64), KW_16(80),
         KW_16(96), KW_16(112))
#undef KW_WGMMA
#undef KW_16
#undef KW_EIGHT
#undef KW_TEN

}  // namespace kw
