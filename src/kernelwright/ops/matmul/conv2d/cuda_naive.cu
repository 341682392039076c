// One thread per result.
//
// Idea: the definition: the sum over filter rows, filter columns and channels, where they lie
// inside the image. Adjacent threads compute adjacent output channels of one pixel.
// Traffic: a result reads rows * cols * channels elements of the input and as many of the weight;
// the threads of a warp read the same pixel, and 32 rows of the weight.
// Compared with `manual`: the matrix of patches is not written to memory.
// Limit: sectors. A warp's load of the weight accesses 32 of them for 32 elements.
#include "geometry.cuh"
#include "kw/types.cuh"

template <typename T>
__global__ void conv2d_naive(const T *__restrict__ x, const T *__restrict__ weight,
                             const T *__restrict__ bias, T *__restrict__ y, const Geometry g,
                             long long results) {
  const long long i = blockIdx.x * static_cast<long long>(blockDim.x) + threadIdx.x;
  if (i >= results) return;
  const int channel = i % g.out_channels;
  long long pixel = i / g.out_channels;
  const int left = pixel % g.out_width * g.stride_x - g.pad_x;
  pixel /= g.out_width;
  const int top = pixel % g.out_height * g.stride_y - g.pad_y;
  const T *image = x + pixel / g.out_height * g.height * g.width * g.channels;
  const T *filter = weight + static_cast<long long>(channel) * g.rows * g.cols * g.channels;

  float total = 0.0f;
  for (int r = 0; r < g.rows; r++)
    for (int s = 0; s < g.cols; s++) {
      const int h = top + r * g.dilation_y, w = left + s * g.dilation_x;
      if (h < 0 || h >= g.height || w < 0 || w >= g.width) continue;
      const T *from = image + (static_cast<long long>(h) * g.width + w) * g.channels;
      float sum = 0.0f;
      for (int c = 0; c < g.channels; c++)
        sum += kw::to_float(from[c]) * kw::to_float(filter[(r * g.cols + s) * g.channels + c]);
      total += sum;
    }
  y[i] = kw::from_float<T>(total + (bias ? kw::to_float(bias[channel]) : 0.0f));
}
