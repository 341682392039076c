// Softmax of rows as FasterTransformer computes it: a block for each row, an element at a time.
//
//     kernelwright run examples/softmax_block_per_row.cu --check all
//     kernelwright dissect examples/softmax_block_per_row.cu:softmax_block_per_row \
//       --launch examples/softmax_block_per_row.py
//
// Idea: a thread holds elements t, t + blockDim, ... of the row in registers; maximum and sum go
// through shared memory, with barriers.
// Traffic: x read once, y written once, 4 bytes for each lane of a request.
// Limit: at each barrier the whole block waits, and a row has few bytes in flight.
#include <cmath>
#include <cstdio>
#include <vector>

constexpr int kMost = 4;  // elements of a thread

template <bool MAX> __device__ float of_block(float v) {
  __shared__ float parts[32], result;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (int i = 16; i > 0; i /= 2) {
    const float other = __shfl_xor_sync(0xffffffffu, v, i);
    v = MAX ? fmaxf(v, other) : v + other;
  }
  if (lane == 0) parts[warp] = v;
  __syncthreads();
  if (warp == 0) {
    v = lane < blockDim.x / 32 ? parts[lane] : (MAX ? -INFINITY : 0.0f);
    for (int i = 16; i > 0; i /= 2) {
      const float other = __shfl_xor_sync(0xffffffffu, v, i);
      v = MAX ? fmaxf(v, other) : v + other;
    }
    if (lane == 0) result = v;
  }
  __syncthreads();
  return result;
}

__global__ void softmax_block_per_row(const float *x, float *y, int columns) {
  const long long row = static_cast<long long>(blockIdx.x) * columns;
  float v[kMost], most = -INFINITY, sum = 0.0f;
  for (int k = 0; k < kMost; k++) {
    const int c = threadIdx.x + k * blockDim.x;
    v[k] = c < columns ? x[row + c] : -INFINITY;
    most = fmaxf(most, v[k]);
  }
  most = of_block<true>(most);
  for (int k = 0; k < kMost; k++) sum += v[k] = __expf(v[k] - most);
  const float scale = 1.0f / of_block<false>(sum);
  for (int k = 0; k < kMost; k++) {
    const int c = threadIdx.x + k * blockDim.x;
    if (c < columns) y[row + c] = v[k] * scale;
  }
}

// Compares a few rows with the same on the host.
int main() {
  const int rows = 3, columns = 768;
  std::vector<float> x(rows * columns), y(rows * columns);
  for (int i = 0; i < rows * columns; i++) x[i] = static_cast<float>(i * 37 % 101) / 10;
  float *dx, *dy;
  cudaMalloc(&dx, x.size() * sizeof(float));
  cudaMalloc(&dy, y.size() * sizeof(float));
  cudaMemcpy(dx, x.data(), x.size() * sizeof(float), cudaMemcpyHostToDevice);
  softmax_block_per_row<<<rows, 256>>>(dx, dy, columns);
  cudaMemcpy(y.data(), dy, y.size() * sizeof(float), cudaMemcpyDeviceToHost);
  double worst = 0;
  for (int r = 0; r < rows; r++) {
    double sum = 0;
    for (int c = 0; c < columns; c++) sum += std::exp(x[r * columns + c] - 10.0);
    for (int c = 0; c < columns; c++) {
      const double expected = std::exp(x[r * columns + c] - 10.0) / sum;
      worst = std::fmax(worst, std::fabs(y[r * columns + c] / expected - 1));
    }
  }
  cudaFree(dx);
  cudaFree(dy);
  std::printf("largest relative error %.1e\n", worst);
  return !(worst < 1e-5);
}
