// Kernels whose threads synchronize. Prints the processor time of each launch.
#include <cuda_fp16.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <vector>

#define T 32
__global__ void naive(const float *a, const float *b, float *c, int n) {
  const int row = blockIdx.y * T + threadIdx.y, col = blockIdx.x * T + threadIdx.x;
  float sum = 0;
  for (int k = 0; k < n; ++k) sum += a[row * n + k] * b[k * n + col];
  c[row * n + col] = sum;
}
__global__ void tiled(const float *a, const float *b, float *c, int n) {
  __shared__ float x[T][T], y[T][T];
  const int i = threadIdx.y, j = threadIdx.x, row = blockIdx.y * T + i, col = blockIdx.x * T + j;
  float sum = 0;
  for (int t = 0; t < n; t += T) {
    x[i][j] = a[row * n + t + j];
    y[i][j] = b[(t + i) * n + col];
    __syncthreads();
    for (int k = 0; k < T; ++k) sum += x[i][k] * y[k][j];
    __syncthreads();
  }
  c[row * n + col] = sum;
}
__global__ void barrier_sum(const float *in, float *out, int n) {
  __shared__ float s[256];
  const int t = threadIdx.x, i = blockIdx.x * 256 + t;
  s[t] = i < n ? in[i] : 0;
  __syncthreads();
  for (int d = 128; d > 0; d /= 2) {
    if (t < d) s[t] += s[t + d];
    __syncthreads();
  }
  if (t == 0) out[blockIdx.x] = s[0];
}
__global__ void shuffle_sum(const float *in, float *out, int n) {
  __shared__ float s[8];
  const int t = threadIdx.x, i = blockIdx.x * 256 + t;
  float x = i < n ? in[i] : 0;
  for (int d = 16; d > 0; d /= 2) x += __shfl_down_sync(0xffffffffu, x, d);
  if (t % 32 == 0) s[t / 32] = x;
  __syncthreads();
  if (t == 0)
    for (int w = 1; w < 8; ++w) x += s[w];
  if (t == 0) out[blockIdx.x] = x;
}
__device__ unsigned at(const void *p) { return static_cast<unsigned>(__cvta_generic_to_shared(p)); }
// 64 x 32 elements of the product in a block of four warps.
__global__ void tensor(const half *a, const half *b, float *c, int n) {
  __shared__ half x[64][16], y[16][32];
  const int t = threadIdx.x, lane = t % 32, first = blockIdx.y * 64, col = blockIdx.x * 32;
  float sum[4][4] = {};
  for (int k = 0; k < n; k += 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at(&x[t / 2][t % 2 * 8])),
                 "l"(a + (first + t / 2) * n + k + t % 2 * 8));
    if (t < 64)
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at(&y[t / 4][t % 4 * 8])),
                   "l"(b + (k + t / 4) * n + col + t % 4 * 8));
    asm volatile("cp.async.wait_all;");
    __syncthreads();
    unsigned p[4], q[2];
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(p[0]), "=r"(p[1]), "=r"(p[2]), "=r"(p[3])
                 : "r"(at(&x[t / 32 * 16 + lane % 16][lane / 16 * 8])));
    for (int m = 0; m < 4; ++m) {
      asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                   : "=r"(q[0]), "=r"(q[1])
                   : "r"(at(&y[lane % 16][m * 8])));
      asm volatile(
          "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
          "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
          : "+f"(sum[m][0]), "+f"(sum[m][1]), "+f"(sum[m][2]), "+f"(sum[m][3])
          : "r"(p[0]), "r"(p[1]), "r"(p[2]), "r"(p[3]), "r"(q[0]), "r"(q[1]));
    }
    __syncthreads();
  }
  for (int m = 0; m < 4; ++m)
    for (int e = 0; e < 4; ++e)
      c[(first + t / 32 * 16 + lane / 4 + e / 2 * 8) * n + col + m * 8 + lane % 4 * 2 + e % 2] =
          sum[m][e];
}

static double seconds() {
  timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return t.tv_sec + t.tv_nsec * 1e-9;
}
template <typename Launch> void timed(const char *name, Launch launch) {
  const double start = seconds();
  launch();
  if (cudaDeviceSynchronize() != cudaSuccess) exit(1);
  printf("%s %.4f\n", name, seconds() - start);
}
int main() {
  const int n = 1024, many = 1 << 24, small = 256;
  std::vector<float> values(many);
  for (int i = 0; i < many; ++i) values[i] = (i * 37 % 101) / 50.f - 1;
  float *in, *out;
  half *halves;
  cudaMalloc(&in, many * 4), cudaMalloc(&out, n * n * 4), cudaMallocManaged(&halves, n * n * 2);
  cudaMemcpy(in, values.data(), many * 4, cudaMemcpyHostToDevice);
  for (int i = 0; i < n * n; ++i) halves[i] = __float2half(values[i]);
  const dim3 grid(n / T, n / T), block(T, T), of_tensor(small / 32, small / 64);
  timed("naive", [&] { naive<<<grid, block>>>(in, in + n * n, out, n); });
  timed("tiled", [&] { tiled<<<grid, block>>>(in, in + n * n, out, n); });
  timed("barrier_sum", [&] { barrier_sum<<<many / 256, 256>>>(in, out, many); });
  timed("shuffle_sum", [&] { shuffle_sum<<<many / 256, 256>>>(in, out, many); });
  timed("tensor", [&] { tensor<<<of_tensor, 128>>>(halves, halves + small, out, small); });
}
