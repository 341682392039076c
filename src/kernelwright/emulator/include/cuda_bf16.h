// Stands for NVIDIA's header of the same name.
#pragma once
#include "emulator/sixteen_bits.h"

KW_SIXTEEN_BITS(__nv_bfloat16, __nv_bfloat162, bfloat)
KW_CONVERSIONS(__nv_bfloat16, __nv_bfloat162, bfloat16, bfloat162)
using nv_bfloat16 = __nv_bfloat16;
using nv_bfloat162 = __nv_bfloat162;
