// The qualifiers of functions and variables.
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
// One OS thread runs a block, so thread_local variables of that OS thread are shared by the threads
// of the block. In a function, thread_local also makes a variable static; `extern` ones are defined
// when the library is linked, all at one address.
#define __shared__ thread_local
// Inline PTX: the builder turns the error that this name causes into a sentence. In whole programs,
// asm statements are rewritten.
#ifndef KW_PROGRAM
#define asm kw_inline_ptx_has_no_cpu_body
#endif
