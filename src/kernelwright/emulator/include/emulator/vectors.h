// int2, float4, ...: aligned as on a GPU, where one instruction moves up to 16 bytes.
#pragma once

#define KW_VECTORS(name, T, a2, a4)                                  \
  struct name##1 { T x; };                                           \
  struct alignas(a2) name##2 { T x, y; };                            \
  struct name##3 { T x, y, z; };                                     \
  struct alignas(a4) name##4 { T x, y, z, w; };                      \
  inline name##1 make_##name##1(T x) { return {x}; }                 \
  inline name##2 make_##name##2(T x, T y) { return {x, y}; }         \
  inline name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; } \
  inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }

KW_VECTORS(char, signed char, 2, 4)
KW_VECTORS(uchar, unsigned char, 2, 4)
KW_VECTORS(short, short, 4, 8)
KW_VECTORS(ushort, unsigned short, 4, 8)
KW_VECTORS(int, int, 8, 16)
KW_VECTORS(uint, unsigned, 8, 16)
KW_VECTORS(long, long, 16, 16)
KW_VECTORS(ulong, unsigned long, 16, 16)
KW_VECTORS(longlong, long long, 16, 16)
KW_VECTORS(ulonglong, unsigned long long, 16, 16)
KW_VECTORS(float, float, 8, 16)
KW_VECTORS(double, double, 16, 16)
#undef KW_VECTORS

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
  constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
  constexpr operator uint3() const { return {x, y, z}; }
};
