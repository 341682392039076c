// The functions that programs use from the header of this name in NVIDIA's samples: vector
// arithmetic.
#pragma once

#define KW_EACH2(T, name, expression) \
  inline T##2 name(T##2 a, T##2 b) { return {expression(a.x, b.x), expression(a.y, b.y)}; }
#define KW_EACH3(T, name, expression)                                          \
  inline T##3 name(T##3 a, T##3 b) {                                           \
    return {expression(a.x, b.x), expression(a.y, b.y), expression(a.z, b.z)}; \
  }
#define KW_EACH4(T, name, expression)                                         \
  inline T##4 name(T##4 a, T##4 b) {                                          \
    return {expression(a.x, b.x), expression(a.y, b.y), expression(a.z, b.z), \
            expression(a.w, b.w)};                                            \
  }
#define KW_ADD(a, b) (a) + (b)
#define KW_SUB(a, b) (a) - (b)
#define KW_MUL(a, b) (a) * (b)
#define KW_DIV(a, b) (a) / (b)
#define KW_MIN(a, b) (b) < (a) ? (b) : (a)
#define KW_MAX(a, b) (a) < (b) ? (b) : (a)
#define KW_OPERATORS(T, S, n, each, fill)                                              \
  each(T, operator+, KW_ADD) each(T, operator-, KW_SUB) each(T, operator*, KW_MUL)     \
      each(T, operator/, KW_DIV) each(T, min, KW_MIN) each(T, max, KW_MAX) inline T##n \
      operator+(T##n a, S b) {                                                         \
    return a + T##n fill;                                                              \
  }                                                                                    \
  inline T##n operator+(S b, T##n a) { return T##n fill + a; }                         \
  inline T##n operator-(T##n a, S b) { return a - T##n fill; }                         \
  inline T##n operator-(S b, T##n a) { return T##n fill - a; }                         \
  inline T##n operator*(T##n a, S b) { return a * T##n fill; }                         \
  inline T##n operator*(S b, T##n a) { return T##n fill * a; }                         \
  inline T##n operator/(T##n a, S b) { return a / T##n fill; }                         \
  inline T##n operator/(S b, T##n a) { return T##n fill / a; }                         \
  inline T##n &operator+=(T##n &a, T##n b) { return a = a + b; }                       \
  inline T##n &operator-=(T##n &a, T##n b) { return a = a - b; }                       \
  inline T##n &operator*=(T##n &a, T##n b) { return a = a * b; }                       \
  inline T##n &operator/=(T##n &a, T##n b) { return a = a / b; }                       \
  inline T##n &operator+=(T##n &a, S b) { return a = a + b; }                          \
  inline T##n &operator-=(T##n &a, S b) { return a = a - b; }                          \
  inline T##n &operator*=(T##n &a, S b) { return a = a * b; }                          \
  inline T##n &operator/=(T##n &a, S b) { return a = a / b; }
#define KW_ALL(T, S)                        \
  KW_OPERATORS(T, S, 2, KW_EACH2, KW_FILL2) \
  KW_OPERATORS(T, S, 3, KW_EACH3, KW_FILL3) \
  KW_OPERATORS(T, S, 4, KW_EACH4, KW_FILL4)
#define KW_FILL2 {b, b}
#define KW_FILL3 {b, b, b}
#define KW_FILL4 {b, b, b, b}
KW_ALL(float, float)
KW_ALL(int, int)
KW_ALL(uint, unsigned)

inline float2 operator-(float2 a) { return {-a.x, -a.y}; }
inline float3 operator-(float3 a) { return {-a.x, -a.y, -a.z}; }
inline float4 operator-(float4 a) { return {-a.x, -a.y, -a.z, -a.w}; }
inline int2 operator-(int2 a) { return {-a.x, -a.y}; }
inline int3 operator-(int3 a) { return {-a.x, -a.y, -a.z}; }
inline int4 operator-(int4 a) { return {-a.x, -a.y, -a.z, -a.w}; }
inline float2 make_float2(float s) { return {s, s}; }
inline float2 make_float2(float3 a) { return {a.x, a.y}; }
inline float2 make_float2(int2 a) { return {float(a.x), float(a.y)}; }
inline float3 make_float3(float s) { return {s, s, s}; }
inline float3 make_float3(float2 a, float z = 0) { return {a.x, a.y, z}; }
inline float3 make_float3(float4 a) { return {a.x, a.y, a.z}; }
inline float3 make_float3(int3 a) { return {float(a.x), float(a.y), float(a.z)}; }
inline float4 make_float4(float s) { return {s, s, s, s}; }
inline float4 make_float4(float3 a, float w = 0) { return {a.x, a.y, a.z, w}; }
inline int2 make_int2(int s) { return {s, s}; }
inline int3 make_int3(int s) { return {s, s, s}; }
inline int3 make_int3(float3 a) { return {int(a.x), int(a.y), int(a.z)}; }
inline uint3 make_uint3(unsigned s) { return {s, s, s}; }
inline float dot(float2 a, float2 b) { return a.x * b.x + a.y * b.y; }
inline float dot(float3 a, float3 b) { return a.x * b.x + a.y * b.y + a.z * b.z; }
inline float dot(float4 a, float4 b) { return a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w; }
inline float3 cross(float3 a, float3 b) {
  return {a.y * b.z - a.z * b.y, a.z * b.x - a.x * b.z, a.x * b.y - a.y * b.x};
}
template <typename V> inline auto length(V v) -> decltype(dot(v, v)) { return sqrtf(dot(v, v)); }
template <typename V> inline auto normalize(V v) -> decltype(v * dot(v, v)) {
  return v * rsqrtf(dot(v, v));
}
inline float lerp(float a, float b, float t) { return a + t * (b - a); }
template <typename V> inline auto lerp(V a, V b, float t) -> decltype(a + t * (b - a)) {
  return a + t * (b - a);
}
inline float clamp(float x, float a, float b) { return fmaxf(a, fminf(x, b)); }
inline int clamp(int x, int a, int b) { return max(a, min(x, b)); }
inline float3 clamp(float3 v, float a, float b) {
  return {clamp(v.x, a, b), clamp(v.y, a, b), clamp(v.z, a, b)};
}
inline float3 floorf(float3 v) { return {floorf(v.x), floorf(v.y), floorf(v.z)}; }
inline float3 fabs(float3 v) { return {fabsf(v.x), fabsf(v.y), fabsf(v.z)}; }
inline float3 reflect(float3 i, float3 n) { return i - 2.0f * n * dot(n, i); }
