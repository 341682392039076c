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

#include "cub/operators.h"
#include "cub/iterators.h"
#include "cub/utilities.h"
#include "cub/warp.h"
#include "cub/block.h"
#include "cub/exchange.h"
#include "cub/device.h"
#include "cub/sorts.h"
#include "cub/segments.h"
#include "cub/neighbors.h"
