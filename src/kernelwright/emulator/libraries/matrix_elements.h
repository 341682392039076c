// Elements of vectors and matrices of all types that cuBLAS, cuBLASLt and cuSPARSE have here.
#pragma once
#include "program/host/host.h"
#include <cuda_fp16.h>
#include <cuda_bf16.h>
#include "cublas_v2.h"

namespace kw::program::blas {

double element(const void *data, cudaDataType type, size_t i);
void put(void *data, cudaDataType type, size_t i, double x);
bool known(cudaDataType);
size_t bytes_of(cudaDataType);

}  // namespace kw::program::blas
