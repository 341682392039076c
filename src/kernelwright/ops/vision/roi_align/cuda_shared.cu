// One region per block, with its points in shared memory.
//
// Idea: rows and columns of a region's points do not depend on each other or on the channel: a
// block computes bins * sampling of each, once, and its threads compute the results of some of the
// channels from them.
// Traffic: as `cuda_naive`.
// Compared with `cuda_naive`: no coordinates in the loop over points, 32-bit divisions.
// Limit: four loads of single elements per point, in L1 and L2.
#include <kw/divisor.cuh>

#include "regions.cuh"

struct Parts {
  kw::Divisor channels, bins_w, bins_h;
};

// A point along one dimension: two pixels, and the weight of the second.
struct alignas(16) Place {
  int low, high;
  float weight;
  bool there;
};

template <typename T, int MOST, int SAMPLING, int BLOCK>
__global__ void __launch_bounds__(BLOCK)
    roi_shared(const T *x, const T *rois, T *y, int results, int share, long long roi_stride,
               long long pixel, kw::Task task, Parts parts, float scale) {
  __shared__ Place rows[MOST], columns[MOST];
  const T *roi = rois + blockIdx.x * roi_stride;
  const int points_h = task.bins_h * SAMPLING, points_w = task.bins_w * SAMPLING;
  for (int k = threadIdx.x; k < points_h + points_w; k += BLOCK) {
    const bool of_rows = k < points_h;
    const int n = of_rows ? k : k - points_h;
    const kw::Span span =
        of_rows ? kw::rows_of(roi, task, scale) : kw::columns_of(roi, task, scale);
    const kw::Point at(span, n / SAMPLING, n % SAMPLING, of_rows ? task.height : task.width);
    Place &to = of_rows ? rows[n] : columns[n];
    to.low = at.low, to.high = at.high, to.weight = at.weight_high, to.there = at.there;
  }
  __syncthreads();
  const long long row = task.width * pixel;
  const T *image = x + kw::image_of(roi, task) * task.planes * task.height * row;
  const int first = blockIdx.y * share, last = min(first + share, results);
  for (int i = first + threadIdx.x; i < last; i += BLOCK) {
    unsigned plane = i;
    const unsigned c = parts.channels.divide(plane), q = parts.bins_w.divide(plane);
    const unsigned p = parts.bins_h.divide(plane);
    const T *from = image + plane * (task.height * row) + c;
    float sum = 0;
#pragma unroll
    for (int j = 0; j < SAMPLING; ++j) {
      const Place down = rows[p * SAMPLING + j];
      const T *top = from + down.low * row, *bottom = from + down.high * row;
      const float below = down.weight, above = 1.0f - below;
#pragma unroll
      for (int k = 0; k < SAMPLING; ++k) {
        const Place right = columns[q * SAMPLING + k];
        const float behind = right.weight, before = 1.0f - behind;
        if (!(down.there && right.there)) continue;
        sum += above * before * kw::to_float(top[right.low * pixel]) +
               above * behind * kw::to_float(top[right.high * pixel]) +
               below * before * kw::to_float(bottom[right.low * pixel]) +
               below * behind * kw::to_float(bottom[right.high * pixel]);
      }
    }
    y[(long long)blockIdx.x * results + i] = kw::from_float<T>(sum / float(SAMPLING * SAMPLING));
  }
}
