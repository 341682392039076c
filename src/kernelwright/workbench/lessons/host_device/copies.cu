// Lesson host_device: memory of the host and of the device, and copies that
// overlap with kernels.
//
//     kernelwright run copies.cu          in the emulator
//     kernelwright run copies.cu --gpu    on this machine's GPU
#include <cstdio>

constexpr int N = 1 << 16, PARTS = 4;

__global__ void triple(float *x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] *= 3;
}

// A copy to the device, a kernel, a copy back: one after the other.
void plain(float *host, float *device) {
  cudaMemcpy(device, host, N * sizeof(float), cudaMemcpyHostToDevice);
  triple<<<(N + 255) / 256, 256>>>(device, N);
  cudaMemcpy(host, device, N * sizeof(float),
             cudaMemcpyDeviceToHost);  // waits for the kernel
}

// The same in parts: part k + 1 is copied while part k is computed. `host`
// must be pinned.
void overlapped(float *host, float *device) {
  constexpr int part = N / PARTS;
  cudaStream_t streams[PARTS];
  for (int k = 0; k < PARTS; k++) {
    cudaStreamCreate(&streams[k]);
    float *h = host + k * part, *d = device + k * part;
    cudaMemcpyAsync(d, h, part * sizeof(float), cudaMemcpyHostToDevice,
                    streams[k]);
    triple<<<(part + 255) / 256, 256, 0, streams[k]>>>(d, part);
    cudaMemcpyAsync(h, d, part * sizeof(float), cudaMemcpyDeviceToHost,
                    streams[k]);
  }
  cudaDeviceSynchronize();
}

// One address for both sides: pages move to the side that touches them.
void unified(float *both) {
  cudaMemLocation gpu{cudaMemLocationTypeDevice, 0};
  cudaMemPrefetchAsync(both, N * sizeof(float), gpu, 0,
                       0);  // instead of a fault for each page
  triple<<<(N + 255) / 256, 256>>>(both, N);
  cudaDeviceSynchronize();  // before the host reads
}

int main() {
  float *pageable = new float[N], *pinned, *device, *both;
  cudaMallocHost(&pinned, N * sizeof(float));
  cudaMalloc(&device, N * sizeof(float));
  cudaMallocManaged(&both, N * sizeof(float));
  for (int i = 0; i < N; i++) pageable[i] = pinned[i] = both[i] = i;
  plain(pageable, device);
  overlapped(pinned, device);
  unified(both);
  int wrong = 0;
  for (int i = 0; i < N; i++)
    wrong += pageable[i] != 3.0f * i || pinned[i] != 3.0f * i ||
             both[i] != 3.0f * i;
  delete[] pageable;
  cudaFreeHost(pinned);
  cudaFree(device);
  cudaFree(both);
  return wrong ? 1 : 0;
}
