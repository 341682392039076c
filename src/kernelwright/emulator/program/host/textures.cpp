// Texture and surface objects.
#include <algorithm>
#include <cstring>

#include "arrays.h"
#include "emulator/sixteen_bits.h"
#include "program/textures.h"

namespace kw::program {
namespace {

struct Object {
  cudaResourceDesc resource;
  cudaTextureDesc how;
  cudaChannelFormatDesc format;
  char *data;
  size_t element, row, slice;
  long width, height, depth;
};
std::vector<Object *> objects(1);

Object *object_of(unsigned long long number, const char *what) {
  Object *o = number < objects.size() ? objects[number] : nullptr;
  if (!o) kw_fail("reads %s object %llu, which does not exist", what, number);
  return o;
}

double channel(const Object &o, const char *at, int i) {
  const int bits[] = {o.format.x, o.format.y, o.format.z, o.format.w};
  if (!bits[i]) return i == 3 ? 1 : 0;
  int before = 0;
  for (int k = 0; k < i; ++k) before += bits[k] / 8;
  const char *p = at + before;
  const bool normal = o.how.readMode == cudaReadModeNormalizedFloat;
  const auto read = [&](auto zero) {
    decltype(zero) v;
    std::memcpy(&v, p, sizeof v);
    return v;
  };
  if (o.format.f == cudaChannelFormatKindFloat)
    return bits[i] == 32 ? read(float()) : emulator::half_value(read(std::uint16_t()));
  if (o.format.f == cudaChannelFormatKindSigned) {
    const double v = bits[i] == 8    ? read(std::int8_t())
                     : bits[i] == 16 ? read(std::int16_t())
                                     : read(std::int32_t());
    return normal ? std::max(v / (bits[i] == 8 ? 127.0 : 32767.0), -1.0) : v;
  }
  const double v = bits[i] == 8    ? read(std::uint8_t())
                   : bits[i] == 16 ? read(std::uint16_t())
                                   : read(std::uint32_t());
  return normal ? v / (bits[i] == 8 ? 255.0 : 65535.0) : v;
}

// The index of a texel along one dimension; -1 if the border is read.
long address(long i, long n, cudaTextureAddressMode mode) {
  if (i >= 0 && i < n) return i;
  switch (mode) {
    case cudaAddressModeWrap:
      return ((i % n) + n) % n;
    case cudaAddressModeMirror: {
      const long k = ((i % (2 * n)) + 2 * n) % (2 * n);
      return k < n ? k : 2 * n - 1 - k;
    }
    case cudaAddressModeClamp:
      return i < 0 ? 0 : n - 1;
    default:
      return -1;
  }
}

Texel texel(const Object &o, long x, long y, long z) {
  const auto *mode = o.how.addressMode;
  x = address(x, o.width, mode[0]);
  y = o.height > 1 ? address(y, o.height, mode[1]) : 0;
  z = o.depth > 1 ? address(z, o.depth, mode[2]) : 0;
  if (x < 0 || y < 0 || z < 0) return {};
  const char *at = o.data + z * o.slice + y * o.row + x * o.element;
  return {{channel(o, at, 0), channel(o, at, 1), channel(o, at, 2), channel(o, at, 3)}};
}

// The hardware uses 8 bits for a filter's weight.
double weight(double x) { return std::floor((x - std::floor(x)) * 256 + 0.5) / 256; }

}  // namespace

Texel sample(unsigned long long number, int dimensions, double x, double y, double z, bool fetch) {
  const Object &o = *object_of(number, "texture");
  if (fetch) {
    if (x < 0 || x >= o.width) return {};
    return texel(o, static_cast<long>(x), 0, 0);
  }
  const bool layered = dimensions == 2 && o.depth > 1;
  if (o.how.normalizedCoords) {
    x *= o.width, y *= o.height;
    if (!layered) z *= o.depth;
  }
  if (o.how.filterMode == cudaFilterModePoint)
    return texel(o, static_cast<long>(std::floor(x)), static_cast<long>(std::floor(y)),
                 static_cast<long>(std::floor(z)));
  x -= 0.5, y -= 0.5;
  if (!layered) z -= 0.5;
  const double a = weight(x), b = dimensions > 1 ? weight(y) : 0,
               c = dimensions > 2 ? weight(z) : 0;
  Texel result = {};
  for (int i = 0; i < 8; ++i) {
    const int dx = i & 1, dy = i >> 1 & 1, dz = i >> 2;
    const double w = (dx ? a : 1 - a) * (dy ? b : 1 - b) * (dz ? c : 1 - c);
    if (w == 0) continue;
    const Texel t = texel(o, static_cast<long>(std::floor(x)) + dx,
                          dimensions > 1 ? static_cast<long>(std::floor(y)) + dy : 0,
                          dimensions > 2 ? static_cast<long>(std::floor(z)) + dz
                                         : static_cast<long>(layered ? z : 0));
    for (int k = 0; k < 4; ++k) result.value[k] += w * t.value[k];
  }
  return result;
}

void *surface_at(unsigned long long number, int x, int y, int z, unsigned bytes) {
  const Object &o = *object_of(number, "surface");
  const long row = o.width * static_cast<long>(o.element);
  if (x < 0 || x + static_cast<long>(bytes) > row || y < 0 || y >= std::max(o.height, 1l) ||
      z < 0 || z >= std::max(o.depth, 1l))
    kw_fail("touches byte %d of row %d of a surface of %ld x %ld texels", x, y, o.width, o.height);
  return o.data + z * o.slice + y * o.row + x;
}

namespace {
cudaError_t create(unsigned long long *handle, const cudaResourceDesc *resource,
                   const cudaTextureDesc *how) {
  Object o = {};
  o.resource = *resource;
  if (how) o.how = *how;
  switch (resource->resType) {
    case cudaResourceTypeArray: {
      const cudaArray &a = *resource->res.array.array;
      o.format = a.format, o.data = a.data, o.element = a.element, o.row = a.row;
      o.width = a.extent.width, o.height = a.extent.height, o.depth = a.extent.depth;
      break;
    }
    case cudaResourceTypeLinear: {
      const auto &l = resource->res.linear;
      o.format = l.desc, o.data = static_cast<char *>(l.devPtr);
      o.element = (l.desc.x + l.desc.y + l.desc.z + l.desc.w) / 8;
      o.width = static_cast<long>(l.sizeInBytes / o.element);
      break;
    }
    case cudaResourceTypePitch2D: {
      const auto &p = resource->res.pitch2D;
      o.format = p.desc, o.data = static_cast<char *>(p.devPtr);
      o.element = (p.desc.x + p.desc.y + p.desc.z + p.desc.w) / 8;
      o.row = p.pitchInBytes, o.width = p.width, o.height = p.height;
      break;
    }
    default:
      note("api", "textures of mipmapped arrays are not emulated");
      return give(cudaErrorNotSupported);
  }
  o.slice = o.row * std::max(o.height, 1l);
  *handle = objects.size();
  objects.push_back(new Object(o));
  return give(cudaSuccess);
}
cudaError_t destroy(unsigned long long number) {
  if (number >= objects.size()) return give(cudaErrorInvalidValue);
  delete objects[number];
  objects[number] = nullptr;
  return give(cudaSuccess);
}
}  // namespace
}  // namespace kw::program

using namespace kw::program;

extern "C" {
cudaError_t cudaCreateTextureObject(cudaTextureObject_t *handle, const cudaResourceDesc *resource,
                                    const cudaTextureDesc *how, const cudaResourceViewDesc *) {
  return create(handle, resource, how);
}
cudaError_t cudaDestroyTextureObject(cudaTextureObject_t object) { return destroy(object); }
cudaError_t cudaCreateSurfaceObject(cudaSurfaceObject_t *handle, const cudaResourceDesc *resource) {
  return create(handle, resource, nullptr);
}
cudaError_t cudaDestroySurfaceObject(cudaSurfaceObject_t object) { return destroy(object); }
cudaChannelFormatDesc cudaCreateChannelDesc(int x, int y, int z, int w,
                                            cudaChannelFormatKind kind) {
  return {x, y, z, w, kind};
}
}
