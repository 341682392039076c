// The gradient: each element's goes back to where the element was.
//
// Idea: a thread takes a place of the sorted row and writes its gradient where `indices` says: a
// permutation, so that every element is written, and none twice.
// Traffic: gradients and indices read once, gradients written once, each in a sector of its own.
// Over `native`: no zeros first.
// Limit: 32 bytes moved for each element that lies alone in its sector.
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
