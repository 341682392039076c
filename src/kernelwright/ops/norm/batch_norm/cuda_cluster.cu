// Channels first: a channel in the shared memory of a cluster's blocks.
//
// Idea: group_norm's `cuda_cluster`, whose rows are a channel of each sample.
// Traffic: forward x read, y written once; backward gy, x read, gx written once.
// Limit: 3.5 MiB of a channel, half of that in the backward.
#include "../group_norm/cuda_cluster.cu"
