// Lesson indexing: each thread writes its position.

// One dimension: a row of n elements.
__global__ void row(int *element, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) element[i] = i;
}

// Two dimensions: rows x columns. x runs along a row, so that a warp does
// too.
__global__ void matrix(float *y, int rows, int columns) {
  int c = blockIdx.x * blockDim.x + threadIdx.x;
  int r = blockIdx.y * blockDim.y + threadIdx.y;
  if (r < rows && c < columns) y[r * columns + c] = r + c;
}

// The same with x running down a column.
__global__ void swapped(float *y, int rows, int columns) {
  int r = blockIdx.x * blockDim.x + threadIdx.x;
  int c = blockIdx.y * blockDim.y + threadIdx.y;
  if (r < rows && c < columns) y[r * columns + c] = r + c;
}

// Three dimensions: depth x rows x columns. Also each thread's number in its
// block, warp and lane.
__global__ void volume(int *number, int *warp, int *lane, int rows,
                       int columns) {
  int c = blockIdx.x * blockDim.x + threadIdx.x;
  int r = blockIdx.y * blockDim.y + threadIdx.y;
  int d = blockIdx.z * blockDim.z + threadIdx.z;
  int at = (d * rows + r) * columns + c;
  int mine =
      (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  number[at] = mine;
  warp[at] = mine / 32;
  lane[at] = mine % 32;
}

// Any grid covers any n: each thread takes every (blocks x threads)-th
// element.
__global__ void grid_stride(int *element, int n) {
  int all = gridDim.x * blockDim.x;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += all)
    element[i] = i;
}
