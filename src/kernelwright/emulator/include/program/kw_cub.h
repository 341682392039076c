// The parts of cub/ that programs include: its warp and block primitives and its device-wide
// functions, the latter as plain CPU code. CCCL's own headers hide their device code from a host
// compiler.
#pragma once
#include <chrono>
#include <algorithm>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

#include "cub_parts/operators.h"
#include "cub_parts/iterators.h"
#include "cub_parts/utilities.h"
#include "cub_parts/warp.h"
#include "cub_parts/block.h"
#include "cub_parts/exchange.h"
#include "cub_parts/device.h"
#include "cub_parts/sorts.h"
#include "cub_parts/segments.h"
#include "cub_parts/neighbors.h"
