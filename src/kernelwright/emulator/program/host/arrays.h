// Arrays, and copies that check their bounds.
#pragma once
#include "graphs.h"

// A cudaArray_t is the address of one of these.
struct cudaArray {
  cudaChannelFormatDesc format;
  cudaExtent extent;
  size_t element, row;
  char *data;
};

namespace kw::program {
// `function`, called at `where`, copies; returns an error if it would access memory outside an
// allocation.
cudaError_t copy(const char *function, void *to, const void *from, size_t bytes, cudaMemcpyKind,
                 const void *where);
cudaError_t copy_rows(const char *function, void *to, size_t to_pitch, const void *from,
                      size_t from_pitch, size_t width, size_t height, cudaMemcpyKind,
                      const void *where);
}  // namespace kw::program
