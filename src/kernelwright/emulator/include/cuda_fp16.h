// Stands for NVIDIA's header of the same name.
#pragma once
#include "emulator/sixteen_bits.h"

KW_SIXTEEN_BITS(__half, __half2, half)
KW_CONVERSIONS(__half, __half2, half, half2)
using half = __half;
using half2 = __half2;
using __nv_half = __half;
using __nv_half2 = __half2;
using nv_half = __half;
using nv_half2 = __half2;
