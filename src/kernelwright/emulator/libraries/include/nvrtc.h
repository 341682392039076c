// NVRTC, NVIDIA's compiler at run time; here, the emulator builds the kernels
// (program/host/modules.cpp).
#pragma once
#include <stddef.h>
#ifdef __cplusplus
#include <cstdlib>
#include <cxxabi.h>
#include <string>
#include <typeinfo>
extern "C" {
#endif

typedef enum {
  NVRTC_SUCCESS = 0,
  NVRTC_ERROR_OUT_OF_MEMORY = 1,
  NVRTC_ERROR_PROGRAM_CREATION_FAILURE = 2,
  NVRTC_ERROR_INVALID_INPUT = 3,
  NVRTC_ERROR_INVALID_PROGRAM = 4,
  NVRTC_ERROR_INVALID_OPTION = 5,
  NVRTC_ERROR_COMPILATION = 6,
  NVRTC_ERROR_BUILTIN_OPERATION_FAILURE = 7,
  NVRTC_ERROR_NO_NAME_EXPRESSIONS_AFTER_COMPILATION = 8,
  NVRTC_ERROR_NO_LOWERED_NAMES_BEFORE_COMPILATION = 9,
  NVRTC_ERROR_NAME_EXPRESSION_NOT_VALID = 10,
  NVRTC_ERROR_INTERNAL_ERROR = 11
} nvrtcResult;
typedef struct _nvrtcProgram *nvrtcProgram;

const char *nvrtcGetErrorString(nvrtcResult);
nvrtcResult nvrtcVersion(int *major, int *minor);
nvrtcResult nvrtcGetNumSupportedArchs(int *count);
nvrtcResult nvrtcGetSupportedArchs(int *all);
nvrtcResult nvrtcCreateProgram(nvrtcProgram *, const char *source, const char *name, int count,
                               const char *const *headers, const char *const *include_names);
nvrtcResult nvrtcDestroyProgram(nvrtcProgram *);
nvrtcResult nvrtcCompileProgram(nvrtcProgram, int count, const char *const *options);
nvrtcResult nvrtcGetPTXSize(nvrtcProgram, size_t *);
nvrtcResult nvrtcGetPTX(nvrtcProgram, char *);
nvrtcResult nvrtcGetCUBINSize(nvrtcProgram, size_t *);
nvrtcResult nvrtcGetCUBIN(nvrtcProgram, char *);
nvrtcResult nvrtcGetLTOIRSize(nvrtcProgram, size_t *);
nvrtcResult nvrtcGetLTOIR(nvrtcProgram, char *);
nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram, size_t *);
nvrtcResult nvrtcGetProgramLog(nvrtcProgram, char *);
nvrtcResult nvrtcAddNameExpression(nvrtcProgram, const char *expression);
nvrtcResult nvrtcGetLoweredName(nvrtcProgram, const char *expression, const char **name);

#ifdef __cplusplus
}
inline nvrtcResult nvrtcGetTypeName(const std::type_info &type, std::string *name) {
  int status = 0;
  char *const demangled = abi::__cxa_demangle(type.name(), nullptr, nullptr, &status);
  if (!demangled) return NVRTC_ERROR_INTERNAL_ERROR;
  *name = demangled;
  free(demangled);
  return NVRTC_SUCCESS;
}
template <typename T> struct KwNamedType {};
template <typename T> nvrtcResult nvrtcGetTypeName(std::string *name) {
  const nvrtcResult e = nvrtcGetTypeName(typeid(KwNamedType<T>), name);
  if (e == NVRTC_SUCCESS) *name = name->substr(12, name->size() - 13);  // KwNamedType<...>
  return e;
}
#endif
