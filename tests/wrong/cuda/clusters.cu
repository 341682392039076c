// Clusters of two blocks whose blocks send to each other wrongly; and two that are right.
#include "kw/cluster.cuh"

// Each block of a cluster gets a value of each.
__global__ void exchange(const float *x, float *y) {
  __shared__ float s[2];
  __shared__ kw::Mailbox box;
  const int rank = kw::cluster_rank(), i = threadIdx.x;
  box.open(sizeof(s));
  box.ready();
  if (i < 2) box.send(&s[rank], x[blockIdx.x], i);
  box.wait();
  y[blockIdx.x * blockDim.x + i] = s[0] + s[1];
}

// The same again and again: a slot is sent to once all of its readers have sent of the next turn.
__global__ void exchange_in_turns(const float *x, float *y) {
  __shared__ float s[4][2];
  __shared__ kw::Mailbox boxes[4];
  const int rank = kw::cluster_rank(), i = threadIdx.x;
  kw::Mailbox::open_all(boxes, sizeof(s[0]), [](int turn) { return turn < 9; });
  kw::Mailbox::ready();
  float sum = 0;
  for (int turn = 0; turn < 9; turn++) {
    kw::Mailbox &box = boxes[turn % 4];
    __syncthreads();
    if (i < 2) box.send(&s[turn % 4][rank], x[blockIdx.x] * turn, i);
    box.wait(turn / 4 % 2);
    if (turn + 4 < 9) box.expect(sizeof(s[0]));
    sum += s[turn % 4][0] + s[turn % 4][1];
  }
  y[blockIdx.x * blockDim.x + i] = sum;
}

__global__ void not_ready(const float *x, float *y) {
  __shared__ float s[2];
  __shared__ kw::Mailbox box;
  const int rank = kw::cluster_rank(), i = threadIdx.x;
  box.open(sizeof(s));
  __syncthreads();
  if (i < 2) box.send(&s[rank], x[blockIdx.x], i);
  box.wait();
  y[blockIdx.x * blockDim.x + i] = s[0] + s[1];
}

// The other block's box is open by now, but nothing says so.
__global__ void opened_unseen(const float *x, unsigned *opened, float *y) {
  __shared__ float s;
  __shared__ kw::Mailbox box;
  const int rank = kw::cluster_rank(), i = threadIdx.x;
  box.open(sizeof(s));
  if (i == 0 && rank == 1) atomicExch(opened, 1u);
  if (i == 0 && rank == 0) {
    while (atomicAdd(opened, 0u) == 0) __nanosleep(1);
    box.send(&s, x[0], 1);
  }
  box.ready();
  if (rank == 0) return;
  box.wait();
  y[i] = s;
}

// Its block may have ended before the bytes come.
__global__ void nobody_waits(const float *x, float *y) {
  __shared__ float s[2];
  __shared__ kw::Mailbox box;
  const int rank = kw::cluster_rank(), i = threadIdx.x;
  box.open(sizeof(s));
  box.ready();
  if (i < 2) box.send(&s[rank], x[blockIdx.x], i);
  y[blockIdx.x * blockDim.x + i] = x[blockIdx.x];
}

__global__ void wrong_parity(const float *x, float *y) {
  __shared__ float s[2];
  __shared__ kw::Mailbox box;
  const int rank = kw::cluster_rank(), i = threadIdx.x;
  box.open(sizeof(s));
  box.ready();
  if (i < 2) box.send(&s[rank], x[blockIdx.x], i);
  box.wait(1);
  y[blockIdx.x * blockDim.x + i] = s[0] + s[1];
  box.wait();
}

// A block that has all of a turn sends of the next while the other still reads.
__global__ void one_box_for_all_turns(const float *x, float *y) {
  __shared__ float s[2];
  __shared__ kw::Mailbox box;
  const int rank = kw::cluster_rank(), i = threadIdx.x;
  box.open(sizeof(s));
  box.ready();
  if (i < 2) box.send(&s[rank], x[blockIdx.x], i);
  box.wait();
  y[blockIdx.x * blockDim.x + i] = s[0] + s[1];
  box.expect(sizeof(s));
  if (i < 2) box.send(&s[rank], x[blockIdx.x] + 1, i);
  box.wait(1);
}

__global__ void not_opened_again(const float *x, float *y) {
  __shared__ float s[2];
  __shared__ kw::Mailbox box;
  const int rank = kw::cluster_rank(), i = threadIdx.x;
  box.open(sizeof(s));
  box.ready();
  if (i < 2) box.send(&s[rank], x[blockIdx.x], i);
  box.wait();
  __syncthreads();
  if (i < 2) box.send(&s[rank], x[blockIdx.x], i);
  box.wait(1);
  y[blockIdx.x * blockDim.x + i] = s[0] + s[1];
}

__global__ void opened_twice(const float *x, float *y) {
  __shared__ float s[2];
  __shared__ kw::Mailbox box;
  box.open(sizeof(s));
  box.expect(sizeof(s));
  y[threadIdx.x] = x[blockIdx.x];
}

__global__ void beyond_the_cluster(const float *x, float *y) {
  __shared__ float s[2];
  __shared__ kw::Mailbox box;
  box.open(sizeof(s));
  box.ready();
  if (threadIdx.x == 0) box.send(&s[0], x[blockIdx.x], 2);
  y[threadIdx.x] = x[blockIdx.x];
}

__global__ void beyond_the_slots(const float *x, float *y) {
  extern __shared__ float s[];
  __shared__ kw::Mailbox box;
  box.open(4);
  box.ready();
  if (threadIdx.x == 0) box.send(&s[2], x[blockIdx.x], kw::cluster_rank());
  box.wait();
  y[threadIdx.x] = x[blockIdx.x];
}

__global__ void waits_without_arriving(const float *x, float *y) {
  kw::Mailbox::ready();
  y[threadIdx.x] = x[blockIdx.x];
}

__global__ void arrives_twice(const float *x, float *y) {
  __shared__ kw::Mailbox box;
  box.open(4);
  __syncthreads();
  box.open(4);  // again
  y[threadIdx.x] = x[blockIdx.x];
}

__global__ void barriers_of_two_lines(const float *x, float *y) {
  __shared__ kw::Mailbox box;
  box.open(4);
  if (threadIdx.x < 16)
    box.ready();
  else
    kw::Mailbox::ready();
  y[threadIdx.x] = x[blockIdx.x];
}

__global__ void written_over(const float *x, float *y) {
  __shared__ kw::Mailbox box;
  box.open(4);
  box.ready();
  box.barrier = 0;
  box.wait();
  y[threadIdx.x] = x[blockIdx.x];
}
