// Arrays: rows of elements without a pitch.
#include "arrays.h"

#include <algorithm>

using namespace kw::program;

extern "C" {

cudaError_t cudaMallocArray(cudaArray_t *array, const cudaChannelFormatDesc *format, size_t width,
                            size_t height, unsigned) {
  return cudaMalloc3DArray(array, format, {width, height, 0}, 0);
}
cudaError_t cudaMalloc3DArray(cudaArray_t *array, const cudaChannelFormatDesc *format,
                              cudaExtent extent, unsigned) {
  API;
  const size_t element = (format->x + format->y + format->z + format->w) / 8;
  const size_t height = std::max<size_t>(extent.height, 1),
               depth = std::max<size_t>(extent.depth, 1);
  const size_t row = element * extent.width;
  auto *data = static_cast<char *>(allocate(row * height * depth, Kind::kArray, HERE));
  if (!data) return give(cudaErrorMemoryAllocation);
  *array = new cudaArray{*format, extent, element, row, data};
  return give(cudaSuccess);
}
cudaError_t cudaFreeArray(cudaArray_t array) {
  API;
  if (!array) return give(cudaSuccess);
  release(array->data, HERE);
  delete array;
  return give(cudaSuccess);
}
cudaError_t cudaArrayGetInfo(cudaChannelFormatDesc *format, cudaExtent *extent, unsigned *flags,
                             cudaArray_t array) {
  API;
  if (format) *format = array->format;
  if (extent) *extent = array->extent;
  if (flags) *flags = 0;
  return give(cudaSuccess);
}
cudaError_t cudaMemcpy2DToArray(cudaArray_t to, size_t x, size_t y, const void *from, size_t pitch,
                                size_t width, size_t height, cudaMemcpyKind kind) {
  API;
  if (height == 1 && width > to->row) height = width / to->row, pitch = width = to->row;
  return copy_rows("cudaMemcpy2DToArray", to->data + y * to->row + x, to->row, from, pitch, width,
                   height, kind, HERE);
}
cudaError_t cudaMemcpy2DFromArray(void *to, size_t pitch, cudaArray_const_t from, size_t x,
                                  size_t y, size_t width, size_t height, cudaMemcpyKind kind) {
  API;
  return copy_rows("cudaMemcpy2DFromArray", to, pitch, from->data + y * from->row + x, from->row,
                   width, height, kind, HERE);
}
cudaError_t cudaMemcpy3D(const cudaMemcpy3DParms *p) {
  API;
  const size_t element = p->srcArray   ? p->srcArray->element
                         : p->dstArray ? p->dstArray->element
                                       : 1;
  const size_t width = p->extent.width * element;
  const auto place = [&](cudaArray_t array, const cudaPitchedPtr &ptr, const cudaPos &pos, size_t y,
                         size_t z) {
    if (array) {
      const size_t rows = std::max<size_t>(array->extent.height, 1);
      return array->data + ((pos.z + z) * rows + pos.y + y) * array->row + pos.x * element;
    }
    const size_t rows = ptr.ysize ? ptr.ysize : p->extent.height;
    return static_cast<char *>(ptr.ptr) + ((pos.z + z) * rows + pos.y + y) * ptr.pitch +
           pos.x * (p->srcArray || p->dstArray ? element : 1);
  };
  for (size_t z = 0; z < p->extent.depth; ++z)
    for (size_t y = 0; y < p->extent.height; ++y)
      if (auto e = copy("cudaMemcpy3D", place(p->dstArray, p->dstPtr, p->dstPos, y, z),
                        place(p->srcArray, p->srcPtr, p->srcPos, y, z), width, p->kind, HERE))
        return e;
  return give(cudaSuccess);
}
}
