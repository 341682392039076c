// Functions of one number under CUDA's names that the CPU's math library does not have. The GPU's
// fast approximations are computed exactly here.
#pragma once

#define KW_EACH_FLOAT(name, ...)                                            \
  inline float name##f(float x) { return static_cast<float>(__VA_ARGS__); } \
  inline double name(double x) { return __VA_ARGS__; }
KW_EACH_FLOAT(rsqrt, 1 / ::sqrt(double(x)))
KW_EACH_FLOAT(rcbrt, 1 / ::cbrt(double(x)))
KW_EACH_FLOAT(normcdf, 0.5 * ::erfc(-double(x) * 0.70710678118654752440))
KW_EACH_FLOAT(erfcx, ::exp(double(x) * x) * ::erfc(double(x)))
#undef KW_EACH_FLOAT
inline double kw_sinpi(double x) {
  x = ::fmod(x, 2.0);
  return x == 0 || x == 1 || x == -1 ? 0.0 * x : ::sin(x * 3.14159265358979323846);
}
inline double kw_cospi(double x) {
  x = ::fabs(::fmod(x, 2.0));
  return x == 0.5 || x == 1.5 ? 0.0 : ::cos(x * 3.14159265358979323846);
}
inline double sinpi(double x) { return kw_sinpi(x); }
inline double cospi(double x) { return kw_cospi(x); }
inline float sinpif(float x) { return static_cast<float>(kw_sinpi(x)); }
inline float cospif(float x) { return static_cast<float>(kw_cospi(x)); }
inline float rhypotf(float x, float y) {
  return static_cast<float>(1 / ::hypot(double(x), double(y)));
}
inline double rhypot(double x, double y) { return 1 / ::hypot(x, y); }

// One-instruction approximations.
inline float __expf(float x) { return ::expf(x); }
inline float __exp10f(float x) { return static_cast<float>(::pow(10.0, double(x))); }
inline float __logf(float x) { return ::logf(x); }
inline float __log2f(float x) { return ::log2f(x); }
inline float __log10f(float x) { return ::log10f(x); }
inline float __powf(float x, float y) { return ::powf(x, y); }
inline float __sinf(float x) { return ::sinf(x); }
inline float __cosf(float x) { return ::cosf(x); }
inline float __tanf(float x) { return ::tanf(x); }
inline float __tanhf(float x) { return ::tanhf(x); }
inline void __sincosf(float x, float *s, float *c) { *s = ::sinf(x), *c = ::cosf(x); }
inline float __fdividef(float x, float y) {
  return ::fabsf(y) > 0x1p126f && !::isinf(x) ? (::isinf(y) ? 0.0f / y : x * 0.0f) : x / y;
}
inline float fdividef(float x, float y) { return x / y; }
inline float __saturatef(float x) { return x > 0 ? (x < 1 ? x : 1) : 0; }  // NaN becomes 0

// Rounding to nearest, by name.
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fmaf_rn(float a, float b, float c) { return ::fmaf(a, b, c); }
inline float __frcp_rn(float x) { return 1 / x; }
inline float __fsqrt_rn(float x) { return ::sqrtf(x); }
inline float __frsqrt_rn(float x) { return rsqrtf(x); }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dsub_rn(double a, double b) { return a - b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __ddiv_rn(double a, double b) { return a / b; }
inline double __fma_rn(double a, double b, double c) { return ::fma(a, b, c); }
inline double __drcp_rn(double x) { return 1 / x; }
inline double __dsqrt_rn(double x) { return ::sqrt(x); }

// Conversion to an integer: values are clamped to the range. NaN becomes 0; where 64 bits are read
// or written, the highest bit alone (PTX ISA, cvt).
namespace kw::emulator {
template <typename I, typename F> inline I saturating(F x) {
  constexpr double low = std::is_signed_v<I> ? -double(1ull << (sizeof(I) * 8 - 1)) : 0.0;
  constexpr double high = double(1ull << (sizeof(I) * 8 - 1)) * (std::is_signed_v<I> ? 1 : 2);
  constexpr I top = static_cast<I>(~I(0)) > 0 ? static_cast<I>(~I(0))
                                              : static_cast<I>(~(1ull << (sizeof(I) * 8 - 1)));
  constexpr bool wide = sizeof(F) == 8 || sizeof(I) == 8;
  if (x != x) return wide ? static_cast<I>(1ull << (sizeof(I) * 8 - 1)) : 0;
  return x < low ? static_cast<I>(low) : x >= high ? top : static_cast<I>(x);
}
}  // namespace kw::emulator
#define KW_TO(name, I)                                                                        \
  inline I __float2##name##_rn(float x) { return kw::emulator::saturating<I>(::rintf(x)); }   \
  inline I __float2##name##_rz(float x) { return kw::emulator::saturating<I>(::truncf(x)); }  \
  inline I __float2##name##_ru(float x) { return kw::emulator::saturating<I>(::ceilf(x)); }   \
  inline I __float2##name##_rd(float x) { return kw::emulator::saturating<I>(::floorf(x)); }  \
  inline I __double2##name##_rn(double x) { return kw::emulator::saturating<I>(::rint(x)); }  \
  inline I __double2##name##_rz(double x) { return kw::emulator::saturating<I>(::trunc(x)); } \
  inline I __double2##name##_ru(double x) { return kw::emulator::saturating<I>(::ceil(x)); }  \
  inline I __double2##name##_rd(double x) { return kw::emulator::saturating<I>(::floor(x)); } \
  inline float __##name##2float_rn(I x) { return static_cast<float>(x); }                     \
  inline double __##name##2double_rn(I x) { return static_cast<double>(x); }
KW_TO(int, int)
KW_TO(uint, unsigned)
KW_TO(ll, long long)
KW_TO(ull, unsigned long long)
#undef KW_TO
inline float __double2float_rn(double x) { return static_cast<float>(x); }

// min and max for every pair of types, and the float versions of C's functions.
#define KW_EXTREMES(T)                             \
  inline T min(T a, T b) { return b < a ? b : a; } \
  inline T max(T a, T b) { return a < b ? b : a; }
KW_EXTREMES(int)
KW_EXTREMES(unsigned)
KW_EXTREMES(long)
KW_EXTREMES(unsigned long)
KW_EXTREMES(long long)
KW_EXTREMES(unsigned long long)
#undef KW_EXTREMES
inline float min(float a, float b) { return ::fminf(a, b); }
inline float max(float a, float b) { return ::fmaxf(a, b); }
inline double min(double a, double b) { return ::fmin(a, b); }
inline double max(double a, double b) { return ::fmax(a, b); }
template <typename A, typename B> inline std::common_type_t<A, B> min(A a, B b) {
  using C = std::common_type_t<A, B>;
  return min(static_cast<C>(a), static_cast<C>(b));
}
template <typename A, typename B> inline std::common_type_t<A, B> max(A a, B b) {
  using C = std::common_type_t<A, B>;
  return max(static_cast<C>(a), static_cast<C>(b));
}
inline unsigned umin(unsigned a, unsigned b) { return b < a ? b : a; }
inline unsigned umax(unsigned a, unsigned b) { return a < b ? b : a; }
