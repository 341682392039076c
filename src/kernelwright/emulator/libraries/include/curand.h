// Replaces NVIDIA's header of the same name: generators on the CPU; their numbers are not cuRAND's.
#pragma once
// By which programs know that the header is included.
#define CURAND_H_
#include <cstdio>
#include <random>

typedef enum {
  CURAND_STATUS_SUCCESS = 0,
  CURAND_STATUS_VERSION_MISMATCH = 100,
  CURAND_STATUS_NOT_INITIALIZED = 101,
  CURAND_STATUS_ALLOCATION_FAILED = 102,
  CURAND_STATUS_TYPE_ERROR = 103,
  CURAND_STATUS_OUT_OF_RANGE = 104,
  CURAND_STATUS_LENGTH_NOT_MULTIPLE = 105,
  CURAND_STATUS_DOUBLE_PRECISION_REQUIRED = 106,
  CURAND_STATUS_LAUNCH_FAILURE = 201,
  CURAND_STATUS_PREEXISTING_FAILURE = 202,
  CURAND_STATUS_INITIALIZATION_FAILED = 203,
  CURAND_STATUS_ARCH_MISMATCH = 204,
  CURAND_STATUS_INTERNAL_ERROR = 999
} curandStatus_t;
typedef curandStatus_t curandStatus;
typedef enum {
  CURAND_RNG_PSEUDO_DEFAULT = 100,
  CURAND_RNG_PSEUDO_XORWOW = 101,
  CURAND_RNG_PSEUDO_MRG32K3A = 121,
  CURAND_RNG_PSEUDO_MTGP32 = 141,
  CURAND_RNG_PSEUDO_MT19937 = 142,
  CURAND_RNG_PSEUDO_PHILOX4_32_10 = 161,
  CURAND_RNG_QUASI_DEFAULT = 200,
  CURAND_RNG_QUASI_SOBOL32 = 201
} curandRngType_t;
typedef curandRngType_t curandRngType;
struct curandGenerator_st {
  std::mt19937_64 bits;
};
typedef curandGenerator_st *curandGenerator_t;

#define KW_RAND inline curandStatus_t
// Quasirandom sequences are not implemented: pseudorandom numbers in their place would be wrong.
KW_RAND curandCreateGenerator(curandGenerator_t *generator, curandRngType_t type) {
  if (type >= CURAND_RNG_QUASI_DEFAULT) {
    fprintf(stderr, "curandCreateGenerator: quasirandom generators are not implemented\n");
    return CURAND_STATUS_TYPE_ERROR;
  }
  *generator = new curandGenerator_st;
  return CURAND_STATUS_SUCCESS;
}
KW_RAND curandCreateGeneratorHost(curandGenerator_t *generator, curandRngType_t type) {
  return curandCreateGenerator(generator, type);
}
KW_RAND curandDestroyGenerator(curandGenerator_t g) {
  delete g;
  return CURAND_STATUS_SUCCESS;
}
KW_RAND curandSetPseudoRandomGeneratorSeed(curandGenerator_t g, unsigned long long seed) {
  g->bits.seed(seed);
  return CURAND_STATUS_SUCCESS;
}
KW_RAND curandSetGeneratorOffset(curandGenerator_t g, unsigned long long offset) {
  g->bits.discard(offset);
  return CURAND_STATUS_SUCCESS;
}
KW_RAND curandSetGeneratorOrdering(curandGenerator_t, int) { return CURAND_STATUS_SUCCESS; }
KW_RAND curandSetStream(curandGenerator_t, cudaStream_t) { return CURAND_STATUS_SUCCESS; }
namespace kw::program {
template <typename T, typename F> curandStatus_t generate(T *to, size_t n, F number) {
  for (size_t i = 0; i < n; ++i) to[i] = number();
  wrote(to, n * sizeof(T));
  return CURAND_STATUS_SUCCESS;
}
// In (0, 1], as in cuRAND.
template <typename T> T uniform(curandGenerator_t g) {
  constexpr int bits = sizeof(T) == 4 ? 24 : 53;
  return static_cast<T>(static_cast<double>((g->bits() >> (64 - bits)) + 1) / (1ull << bits));
}
}  // namespace kw::program
KW_RAND curandGenerate(curandGenerator_t g, unsigned *to, size_t n) {
  return kw::program::generate(to, n, [=] { return static_cast<unsigned>(g->bits() >> 32); });
}
KW_RAND curandGenerateUniform(curandGenerator_t g, float *to, size_t n) {
  return kw::program::generate(to, n, [=] { return kw::program::uniform<float>(g); });
}
KW_RAND curandGenerateUniformDouble(curandGenerator_t g, double *to, size_t n) {
  return kw::program::generate(to, n, [=] { return kw::program::uniform<double>(g); });
}
#define KW_DISTRIBUTION(name, T, of)                                        \
  KW_RAND name(curandGenerator_t g, T *to, size_t n, T mean, T deviation) { \
    std::of<T> d(mean, deviation);                                          \
    return kw::program::generate(to, n, [&] { return d(g->bits); });        \
  }
KW_DISTRIBUTION(curandGenerateNormal, float, normal_distribution)
KW_DISTRIBUTION(curandGenerateNormalDouble, double, normal_distribution)
KW_DISTRIBUTION(curandGenerateLogNormal, float, lognormal_distribution)
KW_DISTRIBUTION(curandGenerateLogNormalDouble, double, lognormal_distribution)
#undef KW_DISTRIBUTION
KW_RAND curandGeneratePoisson(curandGenerator_t g, unsigned *to, size_t n, double mean) {
  std::poisson_distribution<unsigned> d(mean);
  return kw::program::generate(to, n, [&] { return d(g->bits); });
}
#undef KW_RAND
