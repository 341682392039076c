// Positions of the points in a region's bins.
#pragma once
#include <kw/vec.cuh>

namespace kw {

// Images, planes, height, width, channels, bins; points of a bin along a dimension, 0: as many as
// pixels; whether coordinates are shifted by half a pixel.
struct Task {
  int images, planes, height, width, channels, bins_h, bins_w, sampling, aligned;
};

// A region along one dimension.
struct Span {
  float start, bin;
  int points;

  __device__ __forceinline__ Span(float low, float high, float scale, int bins, int sampling,
                                  bool aligned) {
    const float moved = aligned ? 0.5f : 0.0f;
    start = __fadd_rn(__fmul_rn(low, scale), -moved);
    float extent = __fadd_rn(__fmul_rn(high, scale), -moved) - start;
    if (!aligned) extent = fmaxf(extent, 1.0f);
    bin = extent / float(bins);
    points = sampling ? sampling : max(int(ceilf(bin)), 0);
  }
};

// A point along one dimension: two pixels and their weights. Outside, both weights are 0.
struct Point {
  int low, high;
  float weight_low, weight_high;
  bool there;

  __device__ __forceinline__ Point(const Span &of, int bin, int k, int pixels) {
    const float step = __fmul_rn(float(k) + 0.5f, of.bin) / float(of.points);
    float at = __fadd_rn(__fadd_rn(of.start, __fmul_rn(float(bin), of.bin)), step);
    there = at >= -1.0f && at <= float(pixels);
    at = there ? fminf(fmaxf(at, 0.0f), float(pixels - 1)) : 0.0f;
    low = int(at);
    high = min(low + 1, pixels - 1);
    weight_high = at - float(low);
    weight_low = 1.0f - weight_high;
  }
};

// The image that a region refers to.
template <typename T>
__device__ __forceinline__ long long image_of(const T *roi, const Task &task) {
  const int image = int(to_float(roi[0]));
  assert(image >= 0 && image < task.images && "boxes: an image's number is out of range");
  return image;
}

template <typename T>
__device__ __forceinline__ Span rows_of(const T *roi, const Task &t, float s) {
  return Span(to_float(roi[2]), to_float(roi[4]), s, t.bins_h, t.sampling, t.aligned);
}
template <typename T>
__device__ __forceinline__ Span columns_of(const T *roi, const Task &t, float s) {
  return Span(to_float(roi[1]), to_float(roi[3]), s, t.bins_w, t.sampling, t.aligned);
}

// A bilinear mean; `row` and `pixel` are elements between rows and pixels.
template <typename T>
__device__ __forceinline__ float at_point(const T *x, const Point &down, const Point &right,
                                          long long row, long long pixel) {
  const T *top = x + down.low * row, *bottom = x + down.high * row;
  return down.weight_low * right.weight_low * to_float(top[right.low * pixel]) +
         down.weight_low * right.weight_high * to_float(top[right.high * pixel]) +
         down.weight_high * right.weight_low * to_float(bottom[right.low * pixel]) +
         down.weight_high * right.weight_high * to_float(bottom[right.high * pixel]);
}

}  // namespace kw
