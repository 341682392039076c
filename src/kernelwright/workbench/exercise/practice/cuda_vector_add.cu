// One element per thread.
//
// Idea: thread i of the grid adds elements i; the grid is rounded up to whole blocks, so the last
// threads have no element.
// Traffic: a and b read once, c written once. The 32 threads of a warp access 32 neighboring
// floats, which are 4 sectors of 32 bytes.
// Limit: DRAM; with vectors of 16 bytes (`add.cuda_vec16` in the library) more bytes are in flight.

__global__ void vector_add(const float *a, const float *b, float *c, long long n) {
  const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) c[i] = a[i] + b[i];
}
