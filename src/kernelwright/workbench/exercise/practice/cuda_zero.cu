// Sets the counts to zero before a histogram is added to them.

__global__ void zero(int *counts, int bins) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < bins) counts[i] = 0;
}
