// Backward, channels first: adjacent channels in the registers of a cluster.
//
// Idea: as the forward: a sample is a row, and the positions of adjacent channels are its columns.
// Traffic: gy and x read once, gx written once.
// Compared with `cuda_cluster`: 16 bytes per access for rows of any length, and no reads or writes
// of shared memory per element.
// Limit: the registers of eight multiprocessors, 512 KiB of each tensor per slab.
#include "../group_norm/cuda_channels_registers_backward.cu"
