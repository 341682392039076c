// Channels last: a slab of channels in the registers of a cluster.
//
// Idea: `cuda_channels_registers` of group_norm, applied to one sample with one channel per group.
// Traffic: x read once, y written once.
// Compared with `cuda_channels`: no reads or writes of shared memory per element.
// Limit: the registers of eight multiprocessors, 1.5 MiB per slab.
#include "../group_norm/cuda_channels_registers.cu"
