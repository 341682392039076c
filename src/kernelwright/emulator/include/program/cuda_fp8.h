// Replaces NVIDIA's header of the same name: numbers of 8 bits.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "program/small_floats.h"

typedef unsigned char __nv_fp8_storage_t;
typedef unsigned short __nv_fp8x2_storage_t;
typedef unsigned __nv_fp8x4_storage_t;
enum __nv_saturation_t { __NV_NOSAT, __NV_SATFINITE };
enum __nv_fp8_interpretation_t { __NV_E4M3, __NV_E5M2 };

inline __nv_fp8_storage_t __nv_cvt_double_to_fp8(double x, __nv_saturation_t,
                                                 __nv_fp8_interpretation_t kind) {
  return kind == __NV_E4M3 ? kw::ptx::e4m3_bits(x) : kw::ptx::e5m2_bits(x);
}
inline __nv_fp8_storage_t __nv_cvt_float_to_fp8(float x, __nv_saturation_t s,
                                                __nv_fp8_interpretation_t kind) {
  return __nv_cvt_double_to_fp8(x, s, kind);
}
inline __nv_fp8x2_storage_t __nv_cvt_float2_to_fp8x2(float2 x, __nv_saturation_t s,
                                                     __nv_fp8_interpretation_t kind) {
  return static_cast<__nv_fp8x2_storage_t>(__nv_cvt_float_to_fp8(x.x, s, kind) |
                                           __nv_cvt_float_to_fp8(x.y, s, kind) << 8);
}
inline __half __nv_cvt_fp8_to_half(__nv_fp8_storage_t bits, __nv_fp8_interpretation_t kind) {
  return __half(kind == __NV_E4M3 ? kw::ptx::e4m3_value(bits) : kw::ptx::e5m2_value(bits));
}
#define KW_EIGHT_BITS(T, kind)                                                                    \
  struct T {                                                                                      \
    __nv_fp8_storage_t __x;                                                                       \
    T() = default;                                                                                \
    explicit T(double x) : __x(kw::ptx::kind##_bits(x)) {}                                        \
    explicit T(float x) : T(double(x)) {}                                                         \
    explicit T(int x) : T(double(x)) {}                                                           \
    explicit T(__half x) : T(double(float(x))) {}                                                 \
    explicit T(__nv_bfloat16 x) : T(double(float(x))) {}                                          \
    explicit operator float() const { return float(kw::ptx::kind##_value(__x)); }                 \
    explicit operator double() const { return kw::ptx::kind##_value(__x); }                       \
    explicit operator __half() const { return __half(kw::ptx::kind##_value(__x)); }               \
    explicit operator __nv_bfloat16() const { return __nv_bfloat16(kw::ptx::kind##_value(__x)); } \
    explicit operator bool() const { return __x & 0x7f; }                                         \
  };
KW_EIGHT_BITS(__nv_fp8_e4m3, e4m3)
KW_EIGHT_BITS(__nv_fp8_e5m2, e5m2)
#undef KW_EIGHT_BITS
#define KW_FOUR(T, E, n)                                       \
  struct T {                                                   \
    E parts[n];                                                \
    T() = default;                                             \
    explicit T(float##n v) {                                   \
      const float *x = &v.x;                                   \
      for (int i = 0; i < n; ++i) parts[i] = E(x[i]);          \
    }                                                          \
    explicit operator float##n() const {                       \
      float##n v;                                              \
      for (int i = 0; i < n; ++i) (&v.x)[i] = float(parts[i]); \
      return v;                                                \
    }                                                          \
  };
KW_FOUR(__nv_fp8x2_e4m3, __nv_fp8_e4m3, 2)
KW_FOUR(__nv_fp8x2_e5m2, __nv_fp8_e5m2, 2)
KW_FOUR(__nv_fp8x4_e4m3, __nv_fp8_e4m3, 4)
KW_FOUR(__nv_fp8x4_e5m2, __nv_fp8_e5m2, 4)
#undef KW_FOUR
