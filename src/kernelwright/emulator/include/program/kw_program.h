// What a whole CUDA program finds without including anything: CUDA C++ for the CPU, and the host
// API, whose types and declarations are those of NVIDIA's own headers.
#pragma once
#define KW_PROGRAM 1

#include <ctype.h>
#include <float.h>
#include <stddef.h>
#include <stdlib.h>
#include <time.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <tuple>

#include <kw_emulator.h>

// Arrays in shared memory start at multiples of 16 bytes, as ptxas places them, so that programs
// may read them as float4.
#undef __shared__
#define __shared__ __attribute__((aligned(16))) thread_local

#include "program/cuda_types.h"
#include "program/launch.h"
#include "program/host_api.h"
#include "program/device_api.h"
#include "program/ptx.h"
#include "program/textures.h"
#include "program/lockstep.h"
#include "program/loops.h"
#include "program/warp_sync.h"

#define __CUDA_RUNTIME_H__
#define __CUDACC__ 1
#define __NVCC__ 1
#define __CUDACC_VER_MAJOR__ 13
#define __CUDACC_VER_MINOR__ 0
#define __CUDACC_VER_BUILD__ 0
#define __CUDACC_EXTENDED_LAMBDA__ 1
#define __CUDACC_RELAXED_CONSTEXPR__ 1
#define __CUDA_ARCH__ 900
#define __CUDA_ARCH_FEAT_SM90_ALL 1  // sm_90a, which has wgmma
#define __CUDA_ARCH_LIST__ 900
