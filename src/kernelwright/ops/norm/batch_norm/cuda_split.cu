// Channels first: a channel split over blocks that do not wait for each other, in two launches.
//
// Idea: group_norm's `cuda_split`, whose rows are a channel of each sample. The last block of a
// channel merges what the others have added up, and writes the variance for the running one.
// Traffic: x read twice, y written once, less what L2 keeps; 16 bytes at a time, where
// `cuda_two_passes` moves elements.
// Limit: three accesses; rows of an odd length are read element by element.
#include "../group_norm/cuda_split.cu"
