// 16-bit floating-point numbers and pairs of them, rounded as on a GPU: each operation is computed
// in a wider type, so precisely that one final rounding to nearest even gives the GPU's result.
#pragma once

namespace kw::emulator {

#ifdef __F16C__
// The instructions without <immintrin.h>, which compilers take half a second to read.
using FourFloats = float __attribute__((vector_size(16)));
using EightShorts = short __attribute__((vector_size(16)));
#endif

// The nearest value of a format with `DIGITS` stored bits of mantissa and smallest normal exponent
// `LOWEST`, as bits; ties to even.
template <int DIGITS, int LOWEST> inline unsigned short rounded(double x) {
  const unsigned long long bits = __builtin_bit_cast(unsigned long long, x);
  const unsigned short sign = bits >> 63 << 15;
  if (x != x) return 0x7fff;
  constexpr int kTop = 1 - LOWEST;  // the largest exponent
  const int own = static_cast<int>(bits >> 52 & 0x7ff) - 1023;
  if (own > kTop) return sign | (2 * kTop + 1) << DIGITS;
  const int exponent = own < LOWEST ? LOWEST : own;
  const double scale =  // 2^(DIGITS - exponent)
      __builtin_bit_cast(double, (1023ull + DIGITS - exponent) << 52);
  const auto quanta = static_cast<unsigned>(__builtin_rint(__builtin_fabs(x) * scale));
  return sign | (((exponent - LOWEST) << DIGITS) + quanta);
}

inline unsigned short half_bits(double x) { return rounded<10, -14>(x); }
inline unsigned short half_bits(float x) {
#ifdef __F16C__
  if (x != x) return 0x7fff;
  const EightShorts halves = __builtin_ia32_vcvtps2ph(FourFloats{x}, 0);
  return static_cast<unsigned short>(halves[0]);
#else
  return rounded<10, -14>(x);
#endif
}
inline float half_value(unsigned short bits) {
#ifdef __F16C__
  return __builtin_ia32_vcvtph2ps(EightShorts{static_cast<short>(bits)})[0];
#else
  const unsigned magnitude = bits & 0x7fffu, sign = (bits & 0x8000u) << 16;
  if (magnitude >= 0x7c00) return __uint_as_float(sign | 0x7f800000u | (magnitude & 0x3ff) << 13);
  const float value = __uint_as_float(magnitude << 13) * 0x1p112f;
  return __uint_as_float(sign | __float_as_uint(value));
#endif
}

inline unsigned short bfloat_bits(double x) { return rounded<7, -126>(x); }
inline unsigned short bfloat_bits(float x) {
  if (x != x) return 0x7fff;
  const unsigned bits = __float_as_uint(x);
  return static_cast<unsigned short>((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}
inline float bfloat_value(unsigned short bits) { return __uint_as_float(unsigned(bits) << 16); }

// a * b + c rounded to odd, so that the second rounding, to 16 bits, gives the same as a single
// one. The product of two 16-bit numbers is exact in double; TwoSum gives the rounding error of the
// sum.
inline double fused(double a, double b, double c) {
  const double product = a * b, sum = product + c;
  if (!(__builtin_fabs(sum) <= 0x1.fffffffffffffp1023)) return sum;
  const double part = sum - product, lost = (product - (sum - part)) + (c - part);
  unsigned long long bits = __builtin_bit_cast(unsigned long long, sum);
  if (lost != 0 && !(bits & 1)) bits += (lost > 0) == (sum > 0) ? 1 : -1ull;
  return __builtin_bit_cast(double, bits);
}

// An integer of 64 bits as double, rounded to odd, so that a second rounding gives the same as a
// single one.
inline double to_odd(unsigned long long x) {
  if (x >> 53 == 0) return double(x);
  const int below = 11 - __builtin_clzll(x);
  const unsigned long long kept = x >> below | ((x & ((1ull << below) - 1)) != 0);
  return double(kept) * double(1ull << below);
}
inline double to_odd(long long x) {
  return x < 0 ? -to_odd(-static_cast<unsigned long long>(x)) : to_odd((unsigned long long)x);
}
inline double exact(int x) { return x; }
inline double exact(unsigned x) { return x; }
inline double exact(long long x) { return to_odd(x); }
inline double exact(unsigned long long x) { return to_odd(x); }

// An exact number as T, of 16 bits: `direction` is -1 down, 0 toward zero, 1 up.
template <typename T> inline T toward(double x, int direction) {
  T result(x);
  const double value = float(result);
  if (x != x || value == x) return result;
  const bool outward = direction && (direction > 0) == (x > 0);
  if (__builtin_fabs(value) < __builtin_fabs(x) && outward) ++result.bits;
  if (__builtin_fabs(value) > __builtin_fabs(x) && !outward) --result.bits;
  return result;
}

}  // namespace kw::emulator

// A type T of 16 bits, with the conversions `KIND`_bits and `KIND`_value, and T2, a pair of T.
#define KW_SIXTEEN_BITS(T, T2, KIND)                                                              \
  struct T##_raw {                                                                                \
    unsigned short x;                                                                             \
  };                                                                                              \
  struct alignas(4) T2##_raw {                                                                    \
    unsigned short x, y;                                                                          \
  };                                                                                              \
  struct T {                                                                                      \
    unsigned short bits;                                                                          \
    T() = default;                                                                                \
    T(float x) : bits(kw::emulator::KIND##_bits(x)) {}                                            \
    T(double x) : bits(kw::emulator::KIND##_bits(x)) {}                                           \
    T(int x) : bits(kw::emulator::KIND##_bits(double(x))) {}                                      \
    T(unsigned x) : bits(kw::emulator::KIND##_bits(double(x))) {}                                 \
    T(short x) : T(int(x)) {}                                                                     \
    T(unsigned short x) : T(unsigned(x)) {}                                                       \
    T(long x) : T((long long)x) {}                                                                \
    T(unsigned long x) : T((unsigned long long)x) {}                                              \
    T(long long x) : bits(kw::emulator::KIND##_bits(kw::emulator::to_odd(x))) {}                  \
    T(unsigned long long x) : bits(kw::emulator::KIND##_bits(kw::emulator::to_odd(x))) {}         \
    T(T##_raw raw) : bits(raw.x) {}                                                               \
    operator T##_raw() const { return {bits}; }                                                   \
    operator float() const { return kw::emulator::KIND##_value(bits); }                           \
    explicit operator bool() const { return (bits & 0x7fff) != 0; }                               \
  };                                                                                              \
  struct alignas(4) T2 {                                                                          \
    T x, y;                                                                                       \
    T2() = default;                                                                               \
    T2(T x, T y) : x(x), y(y) {}                                                                  \
    T2(T2##_raw raw) : x(T##_raw{raw.x}), y(T##_raw{raw.y}) {}                                    \
    operator T2##_raw() const { return {x.bits, y.bits}; }                                        \
  };                                                                                              \
  KW_BINARY(T, T2, __hadd, +, a + b)                                                              \
  KW_BINARY(T, T2, __hsub, -, a - b)                                                              \
  KW_BINARY(T, T2, __hmul, *, a *b)                                                               \
  inline T __hdiv(T a, T b) { return T(float(a) / float(b)); }                                    \
  inline T2 __h2div(T2 a, T2 b) { return {__hdiv(a.x, b.x), __hdiv(a.y, b.y)}; }                  \
  inline T operator/(T a, T b) { return __hdiv(a, b); }                                           \
  inline T2 operator/(T2 a, T2 b) { return __h2div(a, b); }                                       \
  inline T &operator/=(T &a, T b) { return a = a / b; }                                           \
  inline T operator-(T a) {                                                                       \
    a.bits ^= 0x8000;                                                                             \
    return a;                                                                                     \
  }                                                                                               \
  inline T operator+(T a) { return a; }                                                           \
  inline T2 operator-(T2 a) { return {-a.x, -a.y}; }                                              \
  inline T __hneg(T a) { return -a; }                                                             \
  inline T2 __hneg2(T2 a) { return -a; }                                                          \
  inline T __habs(T a) {                                                                          \
    a.bits &= 0x7fff;                                                                             \
    return a;                                                                                     \
  }                                                                                               \
  inline T2 __habs2(T2 a) { return {__habs(a.x), __habs(a.y)}; }                                  \
  inline T __hfma(T a, T b, T c) { return T(kw::emulator::fused(float(a), float(b), float(c))); } \
  inline T2 __hfma2(T2 a, T2 b, T2 c) { return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)}; }  \
  inline T __hfma_relu(T a, T b, T c) {                                                           \
    const T y = __hfma(a, b, c);                                                                  \
    return float(y) < 0 ? T(0.0f) : y;                                                            \
  }                                                                                               \
  inline T2 __hfma2_relu(T2 a, T2 b, T2 c) {                                                      \
    return {__hfma_relu(a.x, b.x, c.x), __hfma_relu(a.y, b.y, c.y)};                              \
  }                                                                                               \
  inline T __hfma_sat(T a, T b, T c) { return T(__saturatef(__hfma(a, b, c))); }                  \
  inline T2 __hfma2_sat(T2 a, T2 b, T2 c) {                                                       \
    return {__hfma_sat(a.x, b.x, c.x), __hfma_sat(a.y, b.y, c.y)};                                \
  }                                                                                               \
  /* a * b + c of complex numbers, whose imaginary part is y */                                   \
  inline T2 __hcmadd(T2 a, T2 b, T2 c) {                                                          \
    const T2 part = __hfma2(T2(a.x, a.x), b, c);                                                  \
    return {__hfma(-a.y, b.y, part.x), __hfma(a.y, b.x, part.y)};                                 \
  }                                                                                               \
  inline T &operator++(T &a) { return a += T(1.0f); }                                             \
  inline T &operator--(T &a) { return a -= T(1.0f); }                                             \
  inline T operator++(T &a, int) {                                                                \
    const T old = a;                                                                              \
    ++a;                                                                                          \
    return old;                                                                                   \
  }                                                                                               \
  inline T operator--(T &a, int) {                                                                \
    const T old = a;                                                                              \
    --a;                                                                                          \
    return old;                                                                                   \
  }                                                                                               \
  inline bool __hisnan(T a) { return float(a) != float(a); }                                      \
  inline T2 __hisnan2(T2 a) {                                                                     \
    return {T(__hisnan(a.x) ? 1.0f : 0.0f), T(__hisnan(a.y) ? 1.0f : 0.0f)};                      \
  }                                                                                               \
  inline int __hisinf(T a) { return __builtin_isinf(float(a)) ? (a.bits >> 15 ? -1 : 1) : 0; }    \
  KW_EXTREME(T, T2, __hmin, <)                                                                    \
  KW_EXTREME(T, T2, __hmax, >)                                                                    \
  KW_COMPARISON(T, T2, eq, ==)                                                                    \
  KW_COMPARISON(T, T2, ne, !=)                                                                    \
  KW_COMPARISON(T, T2, lt, <)                                                                     \
  KW_COMPARISON(T, T2, le, <=)                                                                    \
  KW_COMPARISON(T, T2, gt, >)                                                                     \
  KW_COMPARISON(T, T2, ge, >=)                                                                    \
  KW_FUNCTION(T, T2, exp, ::exp(x))                                                               \
  KW_FUNCTION(T, T2, exp2, ::exp2(x))                                                             \
  KW_FUNCTION(T, T2, exp10, ::pow(10.0, x))                                                       \
  KW_FUNCTION(T, T2, log, ::log(x))                                                               \
  KW_FUNCTION(T, T2, log2, ::log2(x))                                                             \
  KW_FUNCTION(T, T2, log10, ::log10(x))                                                           \
  KW_FUNCTION(T, T2, sin, ::sin(x))                                                               \
  KW_FUNCTION(T, T2, cos, ::cos(x))                                                               \
  KW_FUNCTION(T, T2, tanh, ::tanh(x))                                                             \
  inline T htanh_approx(T a) { return htanh(a); }                                                 \
  inline T2 h2tanh_approx(T2 a) { return h2tanh(a); }                                             \
  KW_FUNCTION(T, T2, sqrt, ::sqrt(x))                                                             \
  KW_FUNCTION(T, T2, rsqrt, 1 / ::sqrt(x))                                                        \
  KW_FUNCTION(T, T2, rcp, 1 / x)                                                                  \
  KW_FUNCTION(T, T2, ceil, ::ceil(x))                                                             \
  KW_FUNCTION(T, T2, floor, ::floor(x))                                                           \
  KW_FUNCTION(T, T2, rint, ::rint(x))                                                             \
  KW_FUNCTION(T, T2, trunc, ::trunc(x))                                                           \
  inline float __low2float(T2 a) { return a.x; }                                                  \
  inline float __high2float(T2 a) { return a.y; }                                                 \
  inline T2 __lowhigh2highlow(T2 a) { return {a.y, a.x}; }

#define KW_BINARY(T, T2, name, op, ...)                                                      \
  inline T name(T left, T right) {                                                           \
    const float a = left, b = right;                                                         \
    return T(__VA_ARGS__);                                                                   \
  }                                                                                          \
  inline T name##_rn(T a, T b) { return name(a, b); }                                        \
  inline T name##_sat(T a, T b) { return T(__saturatef(name(a, b))); }                       \
  inline T2 name##2(T2 a, T2 b) { return {name(a.x, b.x), name(a.y, b.y)}; }                 \
  inline T2 name##2_rn(T2 a, T2 b) { return name##2(a, b); }                                 \
  inline T2 name##2_sat(T2 a, T2 b) { return {name##_sat(a.x, b.x), name##_sat(a.y, b.y)}; } \
  inline T operator op(T a, T b) { return name(a, b); }                                      \
  inline T2 operator op(T2 a, T2 b) { return name##2(a, b); }                                \
  inline T &operator op## = (T & a, T b) { return a = name(a, b); }                          \
  inline T2 &operator op## = (T2 & a, T2 b) { return a = name##2(a, b); }
// The plain forms return the other number if one is NaN, with -0 < 0; the _nan forms return NaN.
#define KW_EXTREME(T, T2, name, op)                                                          \
  inline T name(T a, T b) {                                                                  \
    if (__hisnan(a)) return __hisnan(b) ? __builtin_bit_cast(T, (unsigned short)0x7fff) : b; \
    if (__hisnan(b)) return a;                                                               \
    if (float(a) == 0 && float(b) == 0) return (short)a.bits op(short) b.bits ? a : b;       \
    return float(a) op float(b) ? a : b;                                                     \
  }                                                                                          \
  inline T name##_nan(T a, T b) {                                                            \
    return __hisnan(a) || __hisnan(b) ? __builtin_bit_cast(T, (unsigned short)0x7fff)        \
                                      : name(a, b);                                          \
  }                                                                                          \
  inline T2 name##2(T2 a, T2 b) { return {name(a.x, b.x), name(a.y, b.y)}; }                 \
  inline T2 name##2_nan(T2 a, T2 b) { return {name##_nan(a.x, b.x), name##_nan(a.y, b.y)}; }
// The u forms are true if either number is NaN; __hne is ordered, != is not.
#define KW_COMPARISON(T, T2, name, op)                                                             \
  inline bool operator op(T a, T b) { return float(a) op float(b); }                               \
  inline bool __h##name(T a, T b) { return float(a) op float(b) && !__hisnan(a) && !__hisnan(b); } \
  inline bool __h##name##u(T a, T b) {                                                             \
    return float(a) op float(b) || __hisnan(a) || __hisnan(b);                                     \
  }                                                                                                \
  inline T2 __h##name##2(T2 a, T2 b) {                                                             \
    return {T(__h##name(a.x, b.x) ? 1.0f : 0.0f), T(__h##name(a.y, b.y) ? 1.0f : 0.0f)};           \
  }                                                                                                \
  inline bool __hb##name##2(T2 a, T2 b) { return __h##name(a.x, b.x) && __h##name(a.y, b.y); }     \
  inline T2 __h##name##u2(T2 a, T2 b) {                                                            \
    return {T(__h##name##u(a.x, b.x) ? 1.0f : 0.0f), T(__h##name##u(a.y, b.y) ? 1.0f : 0.0f)};     \
  }                                                                                                \
  inline bool __hb##name##u2(T2 a, T2 b) {                                                         \
    return __h##name##u(a.x, b.x) && __h##name##u(a.y, b.y);                                       \
  }                                                                                                \
  inline unsigned __h##name##2_mask(T2 a, T2 b) {                                                  \
    return (__h##name(a.x, b.x) ? 0xffffu : 0u) | (__h##name(a.y, b.y) ? 0xffff0000u : 0u);        \
  }                                                                                                \
  inline unsigned __h##name##u2_mask(T2 a, T2 b) {                                                 \
    return (__h##name##u(a.x, b.x) ? 0xffffu : 0u) | (__h##name##u(a.y, b.y) ? 0xffff0000u : 0u);  \
  }                                                                                                \
  inline bool operator op(T2 a, T2 b) { return a.x op b.x && a.y op b.y; }
#define KW_FUNCTION(T, T2, name, ...) \
  inline T h##name(T value) {         \
    const double x = float(value);    \
    return T(__VA_ARGS__);            \
  }                                   \
  inline T2 h2##name(T2 a) { return {h##name(a.x), h##name(a.y)}; }

// Conversions named after the type: `name` is half or bfloat16, `pair` half2 or bfloat162.
#define KW_CONVERSIONS(T, T2, name, pair)                                                  \
  inline T __float2##name(float x) { return T(x); }                                        \
  inline T __float2##name##_rn(float x) { return T(x); }                                   \
  inline T __double2##name(double x) { return T(x); }                                      \
  inline float __##name##2float(T x) { return x; }                                         \
  inline T __ushort_as_##name(unsigned short bits) { return __builtin_bit_cast(T, bits); } \
  inline T __short_as_##name(short bits) { return __builtin_bit_cast(T, bits); }           \
  inline unsigned short __##name##_as_ushort(T x) { return x.bits; }                       \
  inline short __##name##_as_short(T x) { return static_cast<short>(x.bits); }             \
  inline T2 __floats2##pair##_rn(float x, float y) { return {T(x), T(y)}; }                \
  inline T2 __float22##pair##_rn(float2 v) { return {T(v.x), T(v.y)}; }                    \
  inline T2 __float2##pair##_rn(float x) { return {T(x), T(x)}; }                          \
  inline float2 __##pair##2float2(T2 v) { return {v.x, v.y}; }                             \
  inline T2 __##name##2##pair(T x) { return {x, x}; }                                      \
  inline T2 __halves2##pair(T x, T y) { return {x, y}; }                                   \
  inline T2 make_##pair(T x, T y) { return {x, y}; }                                       \
  inline T2 __lows2##pair(T2 a, T2 b) { return {a.x, b.x}; }                               \
  inline T2 __highs2##pair(T2 a, T2 b) { return {a.y, b.y}; }                              \
  inline T __low2##name(T2 v) { return v.x; }                                              \
  inline T __high2##name(T2 v) { return v.y; }                                             \
  inline T2 __low2##pair(T2 v) { return {v.x, v.x}; }                                      \
  inline T2 __high2##pair(T2 v) { return {v.y, v.y}; }                                     \
  KW_INTEGERS(T, name, int, int)                                                           \
  KW_INTEGERS(T, name, uint, unsigned)                                                     \
  KW_INTEGERS(T, name, ll, long long)                                                      \
  KW_INTEGERS(T, name, ull, unsigned long long)                                            \
  KW_INTEGERS(T, name, short, short)                                                       \
  KW_INTEGERS(T, name, ushort, unsigned short)                                             \
  KW_DIRECTED(T, __float2##name, float, x)                                                 \
  inline signed char __##name##2char_rz(T x) {                                             \
    return kw::emulator::saturating<signed char>(::truncf(x));                             \
  }                                                                                        \
  inline unsigned char __##name##2uchar_rz(T x) {                                          \
    return kw::emulator::saturating<unsigned char>(::truncf(x));                           \
  }
#define KW_INTEGERS(T, name, kind, I)                                                       \
  inline T __##kind##2##name##_rn(I x) { return T(x); }                                     \
  KW_DIRECTED(T, __##kind##2##name, I, kw::emulator::exact(x))                              \
  inline I __##name##2##kind##_rn(T x) { return kw::emulator::saturating<I>(::rintf(x)); }  \
  inline I __##name##2##kind##_rz(T x) { return kw::emulator::saturating<I>(::truncf(x)); } \
  inline I __##name##2##kind##_ru(T x) { return kw::emulator::saturating<I>(::ceilf(x)); }  \
  inline I __##name##2##kind##_rd(T x) { return kw::emulator::saturating<I>(::floorf(x)); }
#define KW_DIRECTED(T, name, A, ...)                                          \
  inline T name##_rz(A x) { return kw::emulator::toward<T>(__VA_ARGS__, 0); } \
  inline T name##_ru(A x) { return kw::emulator::toward<T>(__VA_ARGS__, 1); } \
  inline T name##_rd(A x) { return kw::emulator::toward<T>(__VA_ARGS__, -1); }
