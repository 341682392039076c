// Channels first: adjacent channels in the registers of a cluster.
//
// Idea: `cuda_channels_registers` of group_norm, with a sample as a row: adjacent channels of a
// sample are contiguous, and their positions are columns of the slab. A slab is as many channels as
// give whole vectors (eight of 7 x 7 bfloat16 positions), and a vector may belong to two channels.
// Traffic: x read once, y written once.
// Compared with `cuda_cluster`: 16 bytes per access for rows of any length, and no reads or writes
// of shared memory per element.
// Limit: the registers of eight multiprocessors, 1.5 MiB per slab; rows of at most 512 vectors.
#include "../group_norm/cuda_channels_registers.cu"
