// Where functions and variables live.
#pragma once

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#ifdef KW_PROGRAM  // headers of the standard library write __attribute__((__noinline__))
#define __noinline__
#else
#define __noinline__ __attribute__((noinline))
#endif
#define __launch_bounds__(...)
#define __maxnreg__(...)
#define __grid_constant__
#define __restrict__ __restrict
#define __constant__
#define __managed__
#define __align__(n) __attribute__((aligned(n)))
#define __builtin_align__(n) __attribute__((aligned(n)))
// A block has an OS thread for itself while it runs, so what its threads share is what that OS
// thread has for itself. In a function, thread_local makes a variable static too; `extern` ones are
// defined when the library is linked, all at one place.
#define __shared__ thread_local
// Inline PTX: the builder turns the error that this name makes into a sentence. Of whole programs,
// asm statements are rewritten.
#ifndef KW_PROGRAM
#define asm kw_inline_ptx_has_no_cpu_body
#endif
