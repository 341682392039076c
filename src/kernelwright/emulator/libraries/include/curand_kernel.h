// Replaces NVIDIA's header of the same name: generators for threads; their numbers are not
// cuRAND's.
#pragma once
#include <curand.h>

// Counter-based (Philox 4x32-10): a subsequence is a range of the counter.
struct curandStatePhilox4_32_10_t {
  unsigned key[2], counter[4], state[4], used;
  bool has_normal, has_double;
  float normal;
  double normal_double;
};
#define KW_STATE(name) \
  struct name : curandStatePhilox4_32_10_t {};
KW_STATE(curandStateXORWOW_t)
KW_STATE(curandStateMRG32k3a_t)
#undef KW_STATE
typedef curandStateXORWOW_t curandState_t;
typedef curandStateXORWOW_t curandState;
typedef curandStateXORWOW_t curandStateXORWOW;
typedef curandStateMRG32k3a_t curandStateMRG32k3a;
typedef curandStatePhilox4_32_10_t curandStatePhilox4_32_10;

namespace kw::program {
inline void philox(curandStatePhilox4_32_10_t *s) {
  unsigned k0 = s->key[0], k1 = s->key[1],
           c[4] = {s->counter[0], s->counter[1], s->counter[2], s->counter[3]};
  for (int i = 0; i < 10; ++i) {
    const unsigned long long a = 0xd2511f53ull * c[0], b = 0xcd9e8d57ull * c[2];
    const unsigned n[4] = {unsigned(b >> 32) ^ c[1] ^ k0, unsigned(b),
                           unsigned(a >> 32) ^ c[3] ^ k1, unsigned(a)};
    for (int j = 0; j < 4; ++j) c[j] = n[j];
    k0 += 0x9e3779b9u, k1 += 0xbb67ae85u;
  }
  for (int j = 0; j < 4; ++j) s->state[j] = c[j];
  if (!++s->counter[0]) ++s->counter[1];
  s->used = 0;
}
}  // namespace kw::program

inline void curand_init(unsigned long long seed, unsigned long long subsequence,
                        unsigned long long offset, curandStatePhilox4_32_10_t *s) {
  *s = {};
  s->key[0] = static_cast<unsigned>(seed), s->key[1] = static_cast<unsigned>(seed >> 32);
  s->counter[2] = static_cast<unsigned>(subsequence);
  s->counter[3] = static_cast<unsigned>(subsequence >> 32);
  s->counter[0] = static_cast<unsigned>(offset / 4);
  s->counter[1] = static_cast<unsigned>(offset / 4 >> 32);
  kw::program::philox(s);
  s->used = offset % 4;
}
inline unsigned curand(curandStatePhilox4_32_10_t *s) {
  if (s->used == 4) kw::program::philox(s);
  return s->state[s->used++];
}
inline uint4 curand4(curandStatePhilox4_32_10_t *s) {
  const unsigned a = curand(s), b = curand(s), c = curand(s);
  return {a, b, c, curand(s)};
}
inline void skipahead(unsigned long long n, curandStatePhilox4_32_10_t *s) {
  for (; n; --n) curand(s);
}
inline float curand_uniform(curandStatePhilox4_32_10_t *s) {
  return static_cast<float>((curand(s) >> 8) + 1) * 0x1p-24f;
}
inline double curand_uniform_double(curandStatePhilox4_32_10_t *s) {
  const unsigned long long high = curand(s);
  return static_cast<double>(((high << 32 | curand(s)) >> 11) + 1) * 0x1p-53;
}
inline float4 curand_uniform4(curandStatePhilox4_32_10_t *s) {
  const float a = curand_uniform(s), b = curand_uniform(s), c = curand_uniform(s);
  return {a, b, c, curand_uniform(s)};
}
inline float2 curand_normal2(curandStatePhilox4_32_10_t *s) {
  const float r = sqrtf(-2 * logf(curand_uniform(s))), a = 6.2831853f * curand_uniform(s);
  return {r * cosf(a), r * sinf(a)};
}
inline double2 curand_normal2_double(curandStatePhilox4_32_10_t *s) {
  const double r = sqrt(-2 * log(curand_uniform_double(s)));
  const double a = 6.283185307179586 * curand_uniform_double(s);
  return {r * cos(a), r * sin(a)};
}
inline float curand_normal(curandStatePhilox4_32_10_t *s) {
  if (s->has_normal) {
    s->has_normal = false;
    return s->normal;
  }
  const float2 both = curand_normal2(s);
  s->has_normal = true, s->normal = both.y;
  return both.x;
}
inline double curand_normal_double(curandStatePhilox4_32_10_t *s) {
  if (s->has_double) {
    s->has_double = false;
    return s->normal_double;
  }
  const double2 both = curand_normal2_double(s);
  s->has_double = true, s->normal_double = both.y;
  return both.x;
}
inline float4 curand_normal4(curandStatePhilox4_32_10_t *s) {
  const float2 a = curand_normal2(s), b = curand_normal2(s);
  return {a.x, a.y, b.x, b.y};
}
inline float curand_log_normal(curandStatePhilox4_32_10_t *s, float mean, float deviation) {
  return expf(mean + deviation * curand_normal(s));
}
// Counts arrivals until a time of `mean` has passed. A sum of times, because exp(-mean) is 0 for a
// mean above 745.
inline unsigned curand_poisson(curandStatePhilox4_32_10_t *s, double mean) {
  unsigned n = 0;
  for (double t = -log(curand_uniform_double(s)); t < mean; ++n)
    t -= log(curand_uniform_double(s));
  return n;
}
