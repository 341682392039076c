// Heads of up to 256 elements: the kernel of `cuda_wgmma` with tiles of 80 keys, or 64 if causal.
//
// Idea: a thread has 128 sums of values, so 40 scores and 20 registers of weights are what its 240
// registers hold. Two stages of keys and of values and 128 queries fill 225 KiB of shared memory.
// Traffic: q and y once, k and v once per 128 queries, from L2.
// Compared with `triton_flash`: wgmma with operands from shared memory, and exponentials that
// overlap with the products of the other warp group.
// Limit: products with 80 columns read 144 rows of operands for 64 x 80 results.
#include "hopper/wgmma_80.cuh"
#include "cuda_wgmma.cu"
