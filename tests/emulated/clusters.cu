// Kernels of one cluster primitive each; test_clusters.py holds what they should give.
#include "kw/cluster.cuh"

__global__ void ranks(int *out) {
  const int block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  if (threadIdx.x == 0) out[block] = kw::cluster_rank();
}

// Every thread sends a value of 8 bytes to a thread of each block: what comes is who sent it.
template <int CLUSTER> __global__ void to_all(long long *out) {
  extern __shared__ long long slots[];  // [block of the cluster][thread]
  __shared__ kw::Mailbox box;
  const int rank = kw::cluster_rank(), i = threadIdx.x, n = blockDim.x;
  box.open(sizeof(long long) * CLUSTER * n);
  box.ready();
  for (int to = 0; to < CLUSTER; to++)
    box.send(&slots[rank * n + (i + to) % n], blockIdx.x * 1000ll + i, to);
  box.wait();
  for (int from = 0; from < CLUSTER; from++)
    out[(blockIdx.x * CLUSTER + from) * n + i] = slots[from * n + i];
}

// A ring: in each turn a block gets what its neighbour has, by one of four boxes.
template <int CLUSTER> __global__ void ring(const int *in, int *out, int turns) {
  __shared__ int slot[4];
  __shared__ kw::Mailbox boxes[4];
  const int rank = kw::cluster_rank(), i = threadIdx.x;
  kw::Mailbox::open_all(boxes, sizeof(int), [&](int turn) { return turn < turns; });
  kw::Mailbox::ready();
  int mine = in[blockIdx.x];
  for (int turn = 0; turn < turns; turn++) {
    kw::Mailbox &box = boxes[turn % 4];
    __syncthreads();
    if (i == 0) box.send(&slot[turn % 4], mine + 1, (rank + 1) % CLUSTER);
    box.wait(turn / 4 % 2);
    if (turn + 4 < turns) box.expect(sizeof(int));
    mine = slot[turn % 4];
  }
  out[blockIdx.x * blockDim.x + i] = mine;
}

// What a thread releases at the cluster's barrier, a thread of another block finds.
__global__ void meets(const int *in, int *out, int *scratch) {
  scratch[blockIdx.x * blockDim.x + threadIdx.x] = in[blockIdx.x * blockDim.x + threadIdx.x];
  kw::emulator::cluster_arrive();
  kw::emulator::cluster_wait();
  const int other = blockIdx.x ^ 1;
  out[blockIdx.x * blockDim.x + threadIdx.x] = scratch[other * blockDim.x + threadIdx.x];
}

// The same without a release: the checks see what is missing.
__global__ void meets_relaxed(const int *in, int *out, int *scratch) {
  scratch[blockIdx.x * blockDim.x + threadIdx.x] = in[blockIdx.x * blockDim.x + threadIdx.x];
  kw::emulator::cluster_arrive_relaxed();
  kw::emulator::cluster_wait();
  const int other = blockIdx.x ^ 1;
  out[blockIdx.x * blockDim.x + threadIdx.x] = scratch[other * blockDim.x + threadIdx.x];
}

// Threads that have ended are not waited for.
__global__ void some_end(int *out) {
  if (threadIdx.x >= 40) return;
  kw::emulator::cluster_arrive();
  kw::emulator::cluster_wait();
  atomicAdd(out + blockIdx.x, 1);
}

__global__ void nobody_sends(int *out) {
  __shared__ kw::Mailbox box;
  box.open(64);
  box.ready();
  if (blockIdx.x == 1) box.wait();
  *out = 1;
}
