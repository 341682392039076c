// Each block counts in shared memory, then adds its counts to the result.
//
// Idea: an atomic in shared memory costs a fraction of one in global memory, and only the threads
// of one block compete for it. At the end a block has one global atomic per bin, not per element.
// Traffic: x read once, coalesced; bins atomics per block.
// Limit: if most elements fall into one bin, the lanes of a warp still take turns; a histogram per
// warp, or counting equal lanes with __match_any_sync first, spreads that.

__global__ void histogram(const int *x, int *counts, long long n, int bins) {
  extern __shared__ int mine[];
  for (int b = threadIdx.x; b < bins; b += blockDim.x) mine[b] = 0;
  __syncthreads();
  const long long step = (long long)gridDim.x * blockDim.x;
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step)
    atomicAdd(&mine[x[i]], 1);
  __syncthreads();
  for (int b = threadIdx.x; b < bins; b += blockDim.x)
    if (mine[b]) atomicAdd(&counts[b], mine[b]);
}
