// Texture references, which CUDA 12 has removed: variables that the host binds to memory. Each is a
// texture object that is created again when it is bound.
#pragma once

struct textureReference {
  int normalized;
  cudaTextureFilterMode filterMode;
  cudaTextureAddressMode addressMode[3];
  cudaChannelFormatDesc channelDesc;
  int sRGB = 0;
  unsigned maxAnisotropy = 0;
  cudaTextureFilterMode mipmapFilterMode = cudaFilterModePoint;
  cudaTextureReadMode kw_mode;
  cudaTextureObject_t kw_object = 0;
};

template <typename T, int dimensions = 1, cudaTextureReadMode mode = cudaReadModeElementType>
struct texture : textureReference {
  explicit texture(int normalized = 0, cudaTextureFilterMode filter = cudaFilterModePoint,
                   cudaTextureAddressMode address = cudaAddressModeClamp)
      : texture(normalized, filter, address, cudaCreateChannelDesc<T>()) {}
  texture(int normalized, cudaTextureFilterMode filter, cudaTextureAddressMode address,
          cudaChannelFormatDesc format)
      : textureReference{normalized, filter, {address, address, address}, format} {
    kw_mode = mode;
  }
};

namespace kw::program {
inline cudaError_t bind(textureReference &t, const cudaResourceDesc &memory) {
  cudaTextureDesc how = {};
  for (int i = 0; i < 3; ++i) how.addressMode[i] = t.addressMode[i];
  how.filterMode = t.filterMode;
  how.readMode = t.kw_mode;
  how.normalizedCoords = t.normalized;
  if (t.kw_object) cudaDestroyTextureObject(t.kw_object);
  return cudaCreateTextureObject(&t.kw_object, &memory, &how, nullptr);
}
// The result of a fetch: a float or a vector of floats if integers are read as fractions.
template <typename T, cudaTextureReadMode mode> struct Fetched {
  using type = T;
};
template <typename T> struct Fetched<T, cudaReadModeNormalizedFloat> {
  using type = std::conditional_t<Channel<T>::count == 1, float,
                                  std::conditional_t<Channel<T>::count == 2, float2, float4>>;
};
}  // namespace kw::program

// The C functions, which take addresses.
inline cudaError_t cudaBindTexture(size_t *offset, textureReference *t, const void *p,
                                   const cudaChannelFormatDesc *format, size_t bytes = 1u << 31) {
  cudaResourceDesc memory = {};
  memory.resType = cudaResourceTypeLinear;
  memory.res.linear.devPtr = const_cast<void *>(p);
  memory.res.linear.desc = *format;
  memory.res.linear.sizeInBytes = bytes;
  if (offset) *offset = 0;
  return kw::program::bind(*t, memory);
}
inline cudaError_t cudaBindTexture2D(size_t *offset, textureReference *t, const void *p,
                                     const cudaChannelFormatDesc *format, size_t width,
                                     size_t height, size_t pitch) {
  cudaResourceDesc memory = {};
  memory.resType = cudaResourceTypePitch2D;
  memory.res.pitch2D.devPtr = const_cast<void *>(p);
  memory.res.pitch2D.desc = *format;
  memory.res.pitch2D.width = width;
  memory.res.pitch2D.height = height;
  memory.res.pitch2D.pitchInBytes = pitch;
  if (offset) *offset = 0;
  return kw::program::bind(*t, memory);
}
inline cudaError_t cudaBindTextureToArray(textureReference *t, cudaArray_const_t array,
                                          const cudaChannelFormatDesc *) {
  cudaResourceDesc memory = {};
  memory.resType = cudaResourceTypeArray;
  memory.res.array.array = const_cast<cudaArray_t>(array);
  return kw::program::bind(*t, memory);
}
inline cudaError_t cudaUnbindTexture(textureReference *t) {
  const cudaError_t e = t->kw_object ? cudaDestroyTextureObject(t->kw_object) : cudaSuccess;
  t->kw_object = 0;
  return e;
}

// The C++ functions.
inline cudaError_t cudaBindTexture(size_t *offset, textureReference &t, const void *p,
                                   const cudaChannelFormatDesc &format, size_t bytes = 1u << 31) {
  return cudaBindTexture(offset, &t, p, &format, bytes);
}
inline cudaError_t cudaBindTexture(size_t *offset, textureReference &t, const void *p,
                                   size_t bytes = 1u << 31) {
  return cudaBindTexture(offset, &t, p, &t.channelDesc, bytes);
}
inline cudaError_t cudaBindTexture2D(size_t *offset, textureReference &t, const void *p,
                                     const cudaChannelFormatDesc &format, size_t width,
                                     size_t height, size_t pitch) {
  return cudaBindTexture2D(offset, &t, p, &format, width, height, pitch);
}
inline cudaError_t cudaBindTexture2D(size_t *offset, textureReference &t, const void *p,
                                     size_t width, size_t height, size_t pitch) {
  return cudaBindTexture2D(offset, &t, p, &t.channelDesc, width, height, pitch);
}
inline cudaError_t cudaBindTextureToArray(textureReference &t, cudaArray_const_t array,
                                          const cudaChannelFormatDesc & = {}) {
  return cudaBindTextureToArray(&t, array, nullptr);
}
inline cudaError_t cudaUnbindTexture(textureReference &t) { return cudaUnbindTexture(&t); }

#define KW_REFERENCE(name, call, ...)                                                      \
  template <typename T, int d, cudaTextureReadMode m>                                      \
  typename kw::program::Fetched<T, m>::type name(const texture<T, d, m> &t, __VA_ARGS__) { \
    using Made = typename kw::program::Fetched<T, m>::type;                                \
    return call;                                                                           \
  }
KW_REFERENCE(tex1Dfetch, tex1Dfetch<Made>(t.kw_object, i), int i)
KW_REFERENCE(tex1D, tex1D<Made>(t.kw_object, x), float x)
KW_REFERENCE(tex2D, tex2D<Made>(t.kw_object, x, y), float x, float y)
KW_REFERENCE(tex2DLayered, tex2DLayered<Made>(t.kw_object, x, y, layer), float x, float y,
             int layer)
KW_REFERENCE(tex3D, tex3D<Made>(t.kw_object, x, y, z), float x, float y, float z)
#undef KW_REFERENCE
