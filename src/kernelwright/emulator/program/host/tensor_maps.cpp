// The driver's tensor maps, as the emulator's copies read them, and entry points of the driver.
#include <cuda.h>
#include <dlfcn.h>

#include <cstring>
#include <string>

#include "host.h"

namespace {
using kw::emulator::TensorMap;

// Which of the driver's rules for an argument is broken, or null.
const char *broken(CUtensorMapDataType type, unsigned rank, const void *address,
                   const cuuint64_t *sizes, const cuuint64_t *strides, const cuuint32_t *box,
                   const cuuint32_t *steps, unsigned bytes, unsigned swizzle) {
  if (type > CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ) return "its data type has no emulation";
  if (rank < 1 || rank > 5) return "its rank must be 1 to 5";
  if (reinterpret_cast<std::uintptr_t>(address) % 16)
    return "the tensor's address must be a multiple of 16";
  for (unsigned d = 0; d < rank; ++d) {
    if (!sizes[d] || sizes[d] > cuuint64_t(1) << 32) return "a dimension must be 1 to 2^32";
    if (!box[d] || box[d] > 256) return "a dimension of the box must be 1 to 256";
    if (!steps[d] || steps[d] > 8) return "an element stride must be 1 to 8";
    if (d + 1 < rank && (strides[d] % 16 || strides[d] >= cuuint64_t(1) << 40))
      return "a stride must be a multiple of 16 below 2^40";
  }
  const unsigned inner = (box[0] + steps[0] - 1) / steps[0] * bytes;
  if (inner % 16) return "the first dimension of the box must be a multiple of 16 bytes";
  if (swizzle && inner > swizzle)
    return "the first dimension of the box must not be longer than the swizzle";
  return nullptr;
}
}  // namespace

extern "C" {
CUresult cuTensorMapEncodeTiled(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank,
                                void *address, const cuuint64_t *sizes, const cuuint64_t *strides,
                                const cuuint32_t *box, const cuuint32_t *steps,
                                CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                CUtensorMapL2promotion, CUtensorMapFloatOOBfill fill) {
  constexpr unsigned kBytes[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4};
  constexpr unsigned kSwizzles[] = {0, 32, 64, 128};
  const auto wrong = [](const char *why) {
    fprintf(stderr, "cuTensorMapEncodeTiled: %s\n", why);
    return CUDA_ERROR_INVALID_VALUE;
  };
  if (interleave != CU_TENSOR_MAP_INTERLEAVE_NONE) return wrong("interleave has no emulation");
  if (swizzle > CU_TENSOR_MAP_SWIZZLE_128B) return wrong("its swizzle has no emulation");
  const unsigned bytes = type <= CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ ? kBytes[type] : 0;
  if (const char *why =
          broken(type, rank, address, sizes, strides, box, steps, bytes, kSwizzles[swizzle]))
    return wrong(why);
  TensorMap encoded = {};
  encoded.mark = kw::emulator::kTensorMap;
  encoded.address = reinterpret_cast<std::uint64_t>(address);
  for (unsigned d = 0; d < 5; ++d) {
    encoded.last[d] = d < rank ? static_cast<std::uint32_t>(sizes[d] - 1) : 0;
    encoded.box[d] = static_cast<std::uint16_t>(d < rank ? box[d] : 1);
    encoded.steps[d] = static_cast<std::uint8_t>(d < rank ? steps[d] : 1);
    if (d + 1 < rank) encoded.strides[d] = strides[d];
  }
  encoded.dimensions = static_cast<std::uint8_t>(rank),
  encoded.bytes = static_cast<std::uint8_t>(bytes);
  encoded.swizzle = static_cast<std::uint8_t>(kSwizzles[swizzle]);
  encoded.type = static_cast<std::uint8_t>(type);
  encoded.nan = fill == CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA;
  std::memcpy(map, &encoded, sizeof encoded);
  return CUDA_SUCCESS;
}

// The functions of the driver API that the emulator has.
CUresult cuGetProcAddress(const char *name, void **function, int, cuuint64_t,
                          CUdriverProcAddressQueryResult *status) {
  *function = dlsym(RTLD_DEFAULT, name);
  if (!*function) *function = dlsym(RTLD_DEFAULT, (std::string(name) + "_v2").c_str());
  if (status)
    *status = *function ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  return *function ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned,
                                             unsigned long long,
                                             cudaDriverEntryPointQueryResult *status) {
  CUdriverProcAddressQueryResult result;
  cuGetProcAddress(name, function, 0, 0, &result);
  if (status)
    *status = *function ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}
#undef cudaGetDriverEntryPoint
cudaError_t cudaGetDriverEntryPoint(const char *name, void **function, unsigned long long flags,
                                    cudaDriverEntryPointQueryResult *status) {
  return cudaGetDriverEntryPointByVersion(name, function, 0, flags, status);
}
}
