// Backward, channels last: a slab of channels in the registers of a cluster.
//
// Idea: as in group_norm, applied to one sample with one channel per group. The sums over a channel
// are the gradients of its bias and weight, and gx is computed from them.
// Traffic: gy and x read once, gx written once.
// Compared with `cuda_channels`: no reads or writes of shared memory per element.
// Limit: the registers of eight multiprocessors, 512 KiB of each tensor per slab.
#include "../group_norm/cuda_channels_registers_backward.cu"
