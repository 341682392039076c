// Which thread this is.
#pragma once

#ifdef KW_WATCHED  // as values: reading them is no access to memory
#define threadIdx (kw_index(0))
#define blockIdx (kw_index(1))
#define blockDim (kw_index(2))
#define gridDim (kw_index(3))
#else
#define threadIdx (kw_current->index)
#define blockIdx (kw_current->block->index)
#define blockDim (kw_current->block->size)
#define gridDim (kw_current->block->grid)
#endif
constexpr int warpSize = 32;
