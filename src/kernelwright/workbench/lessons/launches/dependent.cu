// Lesson launches: a kernel whose launch overlaps with the end of the one
// before.
#include "kw/launch.cuh"

__global__ void first(const float *x, float *y, int n) {
  kw::let_next_launch_start();  // griddepcontrol.launch_dependents
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = 3 * x[i];
}

__global__ void second(const float *w, const float *y, float *z, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float weight = i < n ? w[i] : 0;  // does not depend on `first`
  kw::wait_for_launch_before();     // griddepcontrol.wait
  if (i < n) z[i] = weight * y[i];
}
