// Device functions of older toolkits, and those that only whole programs use.
#pragma once
#include <cfenv>

// ---- shuffles and votes without a mask: they apply to the lanes that have not ended

#define KW_LEGACY(name, ...)                                                       \
  template <typename T> KW_BUILT_IN T name(T value, __VA_ARGS__, int width = 32) { \
    return name##_sync(0xffffffffu, value, lane, width);                           \
  }
KW_LEGACY(__shfl, int lane)
KW_LEGACY(__shfl_up, unsigned lane)
KW_LEGACY(__shfl_down, unsigned lane)
KW_LEGACY(__shfl_xor, int lane)
#undef KW_LEGACY
KW_BUILT_IN int __any(int predicate) { return __any_sync(0xffffffffu, predicate); }
KW_BUILT_IN int __all(int predicate) { return __all_sync(0xffffffffu, predicate); }
KW_BUILT_IN unsigned __ballot(int predicate) { return __ballot_sync(0xffffffffu, predicate); }

// ---- instructions for dynamic programming (DPX): of a word, or of its two halves

namespace kw::program {
template <typename T, typename F>
KW_BUILT_IN unsigned of_halves(F f, unsigned a, unsigned b, unsigned c = 0) {
  const auto half = [](unsigned x, int i) { return static_cast<T>(x >> 16 * i); };
  const auto one = [&](int i) {
    return unsigned(static_cast<unsigned short>(f(half(a, i), half(b, i), half(c, i))));
  };
  return one(0) | one(1) << 16;
}
}  // namespace kw::program
// NAME of T and of halves H: the operation, in which a sum has the width of its operands.
#define KW_DPX(name, word, half, W, H, expression)                                            \
  KW_BUILT_IN W name##word(W a, W b, W c) {                                                   \
    using T = W;                                                                              \
    return expression;                                                                        \
  }                                                                                           \
  KW_BUILT_IN unsigned name##half(unsigned a, unsigned b, unsigned c) {                       \
    using T = H;                                                                              \
    return kw::program::of_halves<H>([](T a, T b, T c) -> T { return expression; }, a, b, c); \
  }
#define KW_DPX_SIGNS(name, expression)                             \
  KW_DPX(name, _s32, _s16x2, int, short, expression)               \
  KW_DPX(name, _u32, _u16x2, unsigned, unsigned short, expression) \
  KW_DPX(name, _s32_relu, _s16x2_relu, int, short, std::max<T>(expression, 0))
KW_DPX_SIGNS(__viaddmax, std::max<T>(T(a + b), c))
KW_DPX_SIGNS(__viaddmin, std::min<T>(T(a + b), c))
KW_DPX_SIGNS(__vimax3, std::max<T>(std::max<T>(a, b), c))
KW_DPX_SIGNS(__vimin3, std::min<T>(std::min<T>(a, b), c))
#undef KW_DPX_SIGNS
#undef KW_DPX
#define KW_DPX_TWO(name, three)                                                       \
  KW_BUILT_IN int name##_s32_relu(int a, int b) { return three##_s32_relu(a, b, b); } \
  KW_BUILT_IN unsigned name##_s16x2_relu(unsigned a, unsigned b) {                    \
    return three##_s16x2_relu(a, b, b);                                               \
  }
KW_DPX_TWO(__vimax, __vimax3)
KW_DPX_TWO(__vimin, __vimin3)
#undef KW_DPX_TWO
// The predicates say whether a is the result.
#define KW_DPX_PREDICATE(name, W, H, word, half, is)                                  \
  KW_BUILT_IN W name##word(W a, W b, bool *pred) { return (*pred = a is b) ? a : b; } \
  KW_BUILT_IN unsigned name##half(unsigned a, unsigned b, bool *high, bool *low) {    \
    *high = static_cast<H>(a >> 16) is static_cast<H>(b >> 16);                       \
    *low = static_cast<H>(a) is static_cast<H>(b);                                    \
    return (*high ? a : b) & 0xffff0000u | (*low ? a : b) & 0xffffu;                  \
  }
KW_DPX_PREDICATE(__vibmax, int, short, _s32, _s16x2, >=)
KW_DPX_PREDICATE(__vibmax, unsigned, unsigned short, _u32, _u16x2, >=)
KW_DPX_PREDICATE(__vibmin, int, short, _s32, _s16x2, <=)
KW_DPX_PREDICATE(__vibmin, unsigned, unsigned short, _u32, _u16x2, <=)
#undef KW_DPX_PREDICATE

// ---- atomics on vectors: one per element

#define KW_VECTOR_ATOMIC(T)                                                      \
  KW_BUILT_IN T##2 atomicAdd(T##2 * p, T##2 v) {                                 \
    return {atomicAdd(&p->x, v.x), atomicAdd(&p->y, v.y)};                       \
  }                                                                              \
  KW_BUILT_IN T##4 atomicAdd(T##4 * p, T##4 v) {                                 \
    return {atomicAdd(&p->x, v.x), atomicAdd(&p->y, v.y), atomicAdd(&p->z, v.z), \
            atomicAdd(&p->w, v.w)};                                              \
  }
KW_VECTOR_ATOMIC(float)
#undef KW_VECTOR_ATOMIC

// ---- rounding by name; round to nearest is in maths.h

namespace kw::program {
// x is the exact result rounded to nearest, `lost` the rounding error.
template <typename T> inline T toward(T x, T lost, int direction) {  // -1 down, 0 zero, 1 up
  if (lost == 0 || x != x) return x;
  const int wanted = direction ? direction : x > 0 ? -1 : 1;
  if ((lost > 0) != (wanted > 0)) return x;
  return std::nextafter(x, wanted > 0 ? T(INFINITY) : T(-INFINITY));
}
inline float narrow(double exact, int direction) {
  const float x = static_cast<float>(exact);
  const double lost = exact - x;
  if (lost == 0 || x != x) return x;
  const int wanted = direction ? direction : exact > 0 ? -1 : 1;
  if ((lost > 0) != (wanted > 0)) return x;
  return std::nextafterf(x, wanted > 0 ? INFINITY : -INFINITY);
}
inline float quotient(float a, float b, int direction) {
  const float q = a / b;
  return toward(q, static_cast<float>(-std::fma(double(q), double(b), -double(a)) / double(b)),
                direction);
}
inline float root(float a, int direction) {
  const float r = std::sqrt(a);
  return toward(r, static_cast<float>(-std::fma(double(r), double(r), -double(a))), direction);
}
// An operation that the processor rounds in this direction. Its operands are read behind the change
// of the mode, for which the compiler would move or fold it otherwise.
template <typename T, typename F>
__attribute__((noinline)) T directed(int direction, F f, T a, T b = 0, T c = 0) {
  volatile T x = a, y = b, z = c;
  const int before = std::fegetround();
  std::fesetround(direction > 0 ? FE_UPWARD : direction < 0 ? FE_DOWNWARD : FE_TOWARDZERO);
  volatile T result = f(x, y, z);
  std::fesetround(before);
  return result;
}
}  // namespace kw::program
#define KW_ROUNDED(suffix, direction)                                                          \
  inline float __fadd_##suffix(float a, float b) {                                             \
    return kw::program::narrow(double(a) + double(b), direction);                              \
  }                                                                                            \
  inline float __fsub_##suffix(float a, float b) { return __fadd_##suffix(a, -b); }            \
  inline float __fmul_##suffix(float a, float b) {                                             \
    return kw::program::narrow(double(a) * double(b), direction);                              \
  }                                                                                            \
  inline float __fmaf_##suffix(float a, float b, float c) {                                    \
    const auto f = [](float x, float y, float z) { return std::fma(x, y, z); };                \
    return kw::program::directed(direction, f, a, b, c);                                       \
  }                                                                                            \
  inline float __fdiv_##suffix(float a, float b) {                                             \
    return kw::program::quotient(a, b, direction);                                             \
  }                                                                                            \
  inline float __frcp_##suffix(float a) { return kw::program::quotient(1, a, direction); }     \
  inline float __fsqrt_##suffix(float a) { return kw::program::root(a, direction); }           \
  inline float __double2float_##suffix(double a) { return kw::program::narrow(a, direction); } \
  inline float __int2float_##suffix(int a) { return kw::program::narrow(a, direction); }       \
  inline float __uint2float_##suffix(unsigned a) { return kw::program::narrow(a, direction); }
#define KW_DIRECTED(name, suffix, direction, expression)                            \
  inline double name##_##suffix(double a, double b) {                               \
    const auto f = [](double x, double y, double) -> double { return expression; }; \
    return kw::program::directed(direction, f, a, b);                               \
  }
#define KW_DOUBLES(suffix, direction)                                                        \
  KW_DIRECTED(__dadd, suffix, direction, x + y)                                              \
  KW_DIRECTED(__dsub, suffix, direction, x - y)                                              \
  KW_DIRECTED(__dmul, suffix, direction, x *y)                                               \
  KW_DIRECTED(__ddiv, suffix, direction, x / y)                                              \
  inline double __drcp_##suffix(double a) { return __ddiv_##suffix(1, a); }                  \
  inline double __dsqrt_##suffix(double a) {                                                 \
    const auto f = [](double x, double, double) -> double { return std::sqrt(x); };          \
    return kw::program::directed(direction, f, a);                                           \
  }                                                                                          \
  inline double __fma_##suffix(double a, double b, double c) {                               \
    const auto f = [](double x, double y, double z) -> double { return std::fma(x, y, z); }; \
    return kw::program::directed(direction, f, a, b, c);                                     \
  }
KW_DOUBLES(rz, 0)
KW_DOUBLES(ru, 1)
KW_DOUBLES(rd, -1)
#undef KW_DOUBLES
#undef KW_DIRECTED
KW_ROUNDED(rz, 0)
KW_ROUNDED(ru, 1)
KW_ROUNDED(rd, -1)
#undef KW_ROUNDED

// ---- words with four bytes or two 16-bit numbers

namespace kw::program {
template <typename T, typename F> inline unsigned each_of(unsigned a, unsigned b, F f) {
  constexpr int kBits = sizeof(T) * 8;
  unsigned result = 0;
  for (int i = 0; i < 32; i += kBits)
    result |= (static_cast<unsigned>(f(static_cast<T>(a >> i), static_cast<T>(b >> i))) &
               ((1u << kBits) - 1))
              << i;
  return result;
}
}  // namespace kw::program
#define KW_SIMD(name, U, S, suffix)                                                           \
  inline unsigned __vadd##suffix(unsigned a, unsigned b) {                                    \
    return kw::program::each_of<U>(a, b, [](int x, int y) { return x + y; });                 \
  }                                                                                           \
  inline unsigned __vsub##suffix(unsigned a, unsigned b) {                                    \
    return kw::program::each_of<U>(a, b, [](int x, int y) { return x - y; });                 \
  }                                                                                           \
  inline unsigned __vmaxu##suffix(unsigned a, unsigned b) {                                   \
    return kw::program::each_of<U>(a, b, [](int x, int y) { return x > y ? x : y; });         \
  }                                                                                           \
  inline unsigned __vmaxs##suffix(unsigned a, unsigned b) {                                   \
    return kw::program::each_of<S>(a, b, [](int x, int y) { return x > y ? x : y; });         \
  }                                                                                           \
  inline unsigned __vminu##suffix(unsigned a, unsigned b) {                                   \
    return kw::program::each_of<U>(a, b, [](int x, int y) { return x < y ? x : y; });         \
  }                                                                                           \
  inline unsigned __vmins##suffix(unsigned a, unsigned b) {                                   \
    return kw::program::each_of<S>(a, b, [](int x, int y) { return x < y ? x : y; });         \
  }                                                                                           \
  inline unsigned __vcmpeq##suffix(unsigned a, unsigned b) {                                  \
    return kw::program::each_of<U>(a, b, [](int x, int y) { return x == y ? -1 : 0; });       \
  }                                                                                           \
  inline unsigned __vabsdiffu##suffix(unsigned a, unsigned b) {                               \
    return kw::program::each_of<U>(a, b, [](int x, int y) { return x > y ? x - y : y - x; }); \
  }
KW_SIMD(4, unsigned char, signed char, 4)
KW_SIMD(2, unsigned short, short, 2)
#undef KW_SIMD

// ---- streams of a kernel's own launches

#ifndef cudaStreamTailLaunch
#define cudaStreamTailLaunch ((cudaStream_t)0x3)
#define cudaStreamFireAndForget ((cudaStream_t)0x4)
#endif

// ---- functions that hide latency or place work on a GPU, without effect here

KW_BUILT_IN void cudaGridDependencySynchronize() {}
KW_BUILT_IN void cudaTriggerProgrammaticLaunchCompletion() {}
KW_BUILT_IN void __prof_trigger(int) {}
KW_BUILT_IN void *__cvta_shared_to_generic(size_t at) {
  return const_cast<unsigned char *>(kw_current->block->shared) + at;
}
KW_BUILT_IN void *__cvta_global_to_generic(size_t at) { return reinterpret_cast<void *>(at); }
KW_BUILT_IN bool __isShared(const void *p) {
  const auto *at = static_cast<const unsigned char *>(p), *start = kw_current->block->shared;
  return at >= start &&
         at < start + kw_current->block->shared_bytes + kw_current->block->dynamic_bytes;
}
KW_BUILT_IN bool __isGlobal(const void *p) { return !__isShared(p) && !__isLocal(p); }

inline float norm3df(float a, float b, float c) { return std::hypot(a, b, c); }
inline double norm3d(double a, double b, double c) { return std::hypot(a, b, c); }
inline float rnorm3df(float a, float b, float c) { return 1 / std::hypot(a, b, c); }
inline double exp10(double x, int) { return ::exp10(x); }
inline float normcdfinvf(float p);
inline double normcdfinv(double p) {
  double low = -40, high = 40;
  for (int i = 0; i < 100; ++i) {
    const double middle = (low + high) / 2;
    (normcdf(middle) < p ? low : high) = middle;
  }
  return (low + high) / 2;
}
inline float normcdfinvf(float p) { return static_cast<float>(normcdfinv(p)); }
inline float cyl_bessel_i0f(float x) { return static_cast<float>(std::cyl_bessel_i(0, x)); }
