// The windows of a pooling.
#pragma once

namespace kw {

// Along one dimension: number of pixels and windows, and the pixels, stride, dilation and padding
// of a window.
struct Windows1d {
  int from, to, kernel, stride, padding, dilation;

  // The first pixel of window o; negative in the padding.
  __device__ __forceinline__ int first(int o) const { return o * stride - padding; }
  __device__ __forceinline__ bool inside(int i) const { return unsigned(i) < unsigned(from); }

  // The windows that may contain pixel i: from begin(i) to before end(i).
  __device__ __forceinline__ int begin(int i) const {
    const int room = i + padding - (kernel - 1) * dilation;
    return room <= 0 ? 0 : (room + stride - 1) / stride;
  }
  __device__ __forceinline__ int end(int i) const { return min(to, (i + padding) / stride + 1); }
};

struct Windows {
  Windows1d h, w;
};

// A rectangle of windows that contain pixels of a block of STRIDE, known at compile time: windows a
// + FIRST to a + LAST contain pixels a * STRIDE to a * STRIDE + STRIDE - 1, of which pixel r is
// element at(r, d) of window a + d (none if that is not between 0 and KERNEL - 1).
template <int KERNEL, int STRIDE, int PADDING> struct Block {
  // padding is at most half of the kernel, so that the numerators are not below -KERNEL
  static constexpr int FIRST =
      (PADDING - KERNEL + 1 + KERNEL * STRIDE + STRIDE - 1) / STRIDE - KERNEL;
  static constexpr int LAST = (STRIDE - 1 + PADDING) / STRIDE;
  static constexpr int COUNT = LAST - FIRST + 1;
  static __device__ __forceinline__ constexpr int at(int r, int d) {
    return r + PADDING - d * STRIDE;
  }
};

}  // namespace kw
