// Writes addresses, passed by value as an argument, to device memory.
struct Words {
  unsigned long long word[2048];
};

extern "C" __global__ void write_addresses(unsigned long long *array,
                                           const __grid_constant__ Words words, long long first,
                                           int count) {
  for (int i = threadIdx.x; i < count; i += blockDim.x) array[first + i] = words.word[i];
}
