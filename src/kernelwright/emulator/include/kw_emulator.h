// CUDA C++ for a C++17 compiler of the CPU: what a .cu file finds without including anything.
// Compiled ahead of rungs; each part is one chapter of the CUDA programming guide.
#pragma once
#include <assert.h>
#include <limits.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <type_traits>
#include <utility>

#include "runtime.h"

#include "emulator/qualifiers.h"
#include "emulator/vectors.h"
#include "emulator/indices.h"
#include "emulator/bits.h"
#include "emulator/barriers.h"
#include "emulator/warps.h"
#include "emulator/atomics.h"
#include "emulator/loads.h"
#include "emulator/clusters.h"
#include "emulator/hopper.h"
#include "emulator/maths.h"
#include "emulator/misc.h"
#include "emulator/entry.h"
