// One thread per result.
//
// Idea: a thread computes its region, bin and channel by divisions, and iterates over the bin's
// points, each of which is a mean of four pixels.
// Traffic: the pixels around the points, from L2 or DRAM; the result written once.
// Compared with `manual`: one launch, and no intermediate tensors.
// Limit: coordinates, which are computed again for every channel of a bin, and 64-bit divisions.
#include "../../layout/permute_copy/places.cuh"
#include "regions.cuh"

// `pixel`: elements between two pixels of x.
template <typename T>
__global__ void roi_naive(const T *x, const T *rois, T *y, long long count, long long roi_stride,
                          long long pixel, kw::Task task, float scale) {
  const long long i = kw::block_number() * blockDim.x + threadIdx.x;
  if (i >= count) return;
  long long region = i;
  const int c = kw::divide(region, task.channels), q = kw::divide(region, task.bins_w);
  const int p = kw::divide(region, task.bins_h), plane = kw::divide(region, task.planes);
  const T *roi = rois + region * roi_stride;
  const kw::Span h = kw::rows_of(roi, task, scale), w = kw::columns_of(roi, task, scale);
  const long long row = task.width * pixel;
  const T *from = x + (kw::image_of(roi, task) * task.planes + plane) * task.height * row + c;
  float sum = 0;
  for (int j = 0; j < h.points; ++j) {
    const kw::Point down(h, p, j, task.height);
    for (int k = 0; k < w.points; ++k) {
      const kw::Point right(w, q, k, task.width);
      if (down.there && right.there) sum += kw::at_point(from, down, right, row, pixel);
    }
  }
  y[i] = kw::from_float<T>(sum / fmaxf(float(h.points) * float(w.points), 1.0f));
}
