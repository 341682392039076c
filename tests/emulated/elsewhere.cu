// What a switch between threads must preserve: values in registers, across every kind of wait.
__global__ void elsewhere(const float *x, float *y) {
  __shared__ float parts[4];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const float *row = &x[blockIdx.x * blockDim.x];
  const auto at = [&](int k) { return row[(threadIdx.x + k) % blockDim.x]; };
  // as many as a call preserves
  const float a = at(0), b = at(1), c = at(2), d = at(3), e = at(4), f = at(5), g = at(6),
              h = at(7);
  float sum = a;
  for (int step = 16; step; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
  if (lane == 0) parts[warp] = sum;
  __syncthreads();
  // other threads ran: read anew
  const bool same = __syncthreads_and(a == at(0) && b == at(1) && c == at(2) && d == at(3) &&
                                      e == at(4) && f == at(5) && g == at(6) && h == at(7));
  if (threadIdx.x == 0) y[blockIdx.x] = same ? parts[0] + parts[1] + parts[2] + parts[3] : -1;
}
