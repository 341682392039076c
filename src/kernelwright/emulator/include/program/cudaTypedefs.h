// NVIDIA's header of the types of the driver's functions, with their names of CUDA 12: without a
// version, a name was that of the newest one.
#pragma once
#include_next <cudaTypedefs.h>

#define KW_NEWEST(name, version) using PFN_##name = PFN_##name##_v##version;
KW_NEWEST(cuInit, 2000)
KW_NEWEST(cuDriverGetVersion, 2020)
KW_NEWEST(cuDeviceGet, 2000)
KW_NEWEST(cuDeviceGetCount, 2000)
KW_NEWEST(cuDeviceGetName, 2000)
KW_NEWEST(cuDeviceGetAttribute, 2000)
KW_NEWEST(cuMemAlloc, 3020)
KW_NEWEST(cuMemFree, 3020)
KW_NEWEST(cuMemcpyHtoD, 3020)
KW_NEWEST(cuMemcpyDtoH, 3020)
KW_NEWEST(cuGetProcAddress, 12000)
KW_NEWEST(cuTensorMapEncodeTiled, 12000)
#undef KW_NEWEST
