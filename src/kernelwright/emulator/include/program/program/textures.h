// Texture and surface objects: formats of channels, addresses, filters.
#pragma once

#pragma GCC visibility push(default)
namespace kw::program {

#define KW_CHANNEL(T, n, k)                                                 \
  template <> struct Channel<T> {                                           \
    static constexpr int bits = sizeof(T) / n * 8, count = n;               \
    static constexpr cudaChannelFormatKind kind = cudaChannelFormatKind##k; \
  };
#define KW_CHANNELS(T, S, k) \
  KW_CHANNEL(S, 1, k) KW_CHANNEL(T##1, 1, k) KW_CHANNEL(T##2, 2, k) KW_CHANNEL(T##4, 4, k)
KW_CHANNELS(char, signed char, Signed)
KW_CHANNELS(uchar, unsigned char, Unsigned)
KW_CHANNELS(short, short, Signed)
KW_CHANNELS(ushort, unsigned short, Unsigned)
KW_CHANNELS(int, int, Signed)
KW_CHANNELS(uint, unsigned, Unsigned)
KW_CHANNELS(float, float, Float)
KW_CHANNEL(char, 1, Signed)
#undef KW_CHANNELS
#undef KW_CHANNEL

// Four channels of a texel: numbers, or integers as they are stored.
struct Texel {
  double value[4];
};
// One sample. `layer` is used if the object has layers; `dimensions` is the number of coordinates.
Texel sample(unsigned long long object, int dimensions, double x, double y, double z, bool fetch);
void *surface_at(unsigned long long object, int x_bytes, int y, int z, unsigned bytes);

template <typename T> inline T as(const Texel &t) {
  if constexpr (std::is_arithmetic_v<T>) {
    return static_cast<T>(t.value[0]);
  } else {
    T texel{};
    using E = decltype(texel.x);
    E *const parts = reinterpret_cast<E *>(&texel);
    for (unsigned i = 0; i < sizeof(T) / sizeof(E); ++i) parts[i] = static_cast<E>(t.value[i]);
    return texel;
  }
}
}  // namespace kw::program
#pragma GCC visibility pop

#define KW_TEXTURE(name, dimensions, x, y, z, fetch, ...)                                  \
  template <typename T> inline T name(cudaTextureObject_t object, __VA_ARGS__) {           \
    return kw::program::as<T>(kw::program::sample(object, dimensions, x, y, z, fetch));    \
  }                                                                                        \
  template <typename T> inline void name(T *to, cudaTextureObject_t object, __VA_ARGS__) { \
    *to = kw::program::as<T>(kw::program::sample(object, dimensions, x, y, z, fetch));     \
  }
KW_TEXTURE(tex1Dfetch, 1, i, 0, 0, true, int i)
KW_TEXTURE(tex1D, 1, x, 0, 0, false, float x)
KW_TEXTURE(tex1DLod, 1, x, 0, 0, false, float x, float)
KW_TEXTURE(tex2D, 2, x, y, 0, false, float x, float y)
KW_TEXTURE(tex2DLod, 2, x, y, 0, false, float x, float y, float)
KW_TEXTURE(tex2DLayered, 2, x, y, layer, false, float x, float y, int layer)
KW_TEXTURE(tex3D, 3, x, y, z, false, float x, float y, float z)
#undef KW_TEXTURE

#define KW_SURFACE(name, y, z, ...)                                            \
  template <typename T>                                                        \
  inline T name##read(cudaSurfaceObject_t s, __VA_ARGS__,                      \
                      cudaSurfaceBoundaryMode = cudaBoundaryModeTrap) {        \
    return *static_cast<T *>(kw::program::surface_at(s, x, y, z, sizeof(T)));  \
  }                                                                            \
  template <typename T>                                                        \
  inline void name##read(T *to, cudaSurfaceObject_t s, __VA_ARGS__,            \
                         cudaSurfaceBoundaryMode = cudaBoundaryModeTrap) {     \
    *to = *static_cast<T *>(kw::program::surface_at(s, x, y, z, sizeof(T)));   \
  }                                                                            \
  template <typename T>                                                        \
  inline void name##write(T value, cudaSurfaceObject_t s, __VA_ARGS__,         \
                          cudaSurfaceBoundaryMode = cudaBoundaryModeTrap) {    \
    *static_cast<T *>(kw::program::surface_at(s, x, y, z, sizeof(T))) = value; \
  }
KW_SURFACE(surf1D, 0, 0, int x)
KW_SURFACE(surf2D, y, 0, int x, int y)
KW_SURFACE(surf3D, y, z, int x, int y, int z)
#undef KW_SURFACE
