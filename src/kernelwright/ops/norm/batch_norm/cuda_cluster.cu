// Channels first: a channel in the shared memory of a cluster.
//
// Idea: `cuda_cluster` of group_norm; the rows of a set are one channel of each sample.
// Traffic: forward: x read once, y written once; backward: gy and x read once, gx written once.
// Compared with `cuda_split`: one read of each operand instead of two.
// Limit: a channel of 3.5 MiB, in the backward half of that.
#include "../group_norm/cuda_cluster.cu"
