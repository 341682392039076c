// The descriptor of a tensor for the copy engine (TMA, compute capability 9.0): a plan's TensorMap,
// encoded by the driver. A kernel takes it as `const __grid_constant__ kw::TensorMap`.
#pragma once

namespace kw {

struct alignas(64) TensorMap {
  unsigned char bytes[128];
};

}  // namespace kw
