// Runs elsewhere.cu where there is no Python for the processor: prints what each block finds.
#include <cstdio>

#include "runtime.h"

using namespace kw::emulator;
extern "C" void kw_run_0(void *const *arguments);
extern "C" const void *kw_dynamic_shared();

int main() {
  constexpr unsigned kBlocks = 6, kThreads = 128;
  float x[kBlocks * kThreads], y[kBlocks];
  for (unsigned i = 0; i < kBlocks * kThreads; ++i) x[i] = i % 97 * 0.25f;
  Library shared;
  kw_library(reinterpret_cast<const void *>(kw_run_0), kw_dynamic_shared(), &shared);
  for (unsigned seed = 0; seed < 5; ++seed) {
    const float *from = x;
    float *to = y;
    void *arguments[] = {&from, &to};
    const Launch launch{kw_run_0, arguments, shared, {kBlocks, 1, 1}, {kThreads, 1, 1}, 0, seed,
                        seed,     60,        2,      1,               nullptr};
    if (const char *wrong = kw_launch(&launch)) {
      std::puts(wrong);
      return 1;
    }
    for (float sum : y) std::printf("%g ", sum);
  }
}
