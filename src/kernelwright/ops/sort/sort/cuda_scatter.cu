// The gradient: each one is written to the former position of its element.
//
// Idea: a thread processes a position of the sorted row and writes its gradient to the position in
// `indices`. This is a permutation, so that every element is written exactly once.
// Traffic: gradients and indices read once, gradients written once, each to a separate sector.
// Compared with `native`: the result is not first filled with zeros.
// Limit: 32 bytes are moved for each element that is alone in its sector.
template <typename U, int BLOCK>
__global__ void __launch_bounds__(BLOCK)
    sort_bwd_scatter(const U *gvalues, const long long *indices, U *gx, long long count,
                     long long n, long long stride) {
  const long long i = (long long)blockIdx.x * BLOCK + threadIdx.x;
  if (i >= count) return;
  const long long row = i / n, at = indices[i];
  assert(at >= 0 && at < n && "indices: out of range");
  gx[row * n + at] = gvalues[row * stride + (i - row * n)];
}
