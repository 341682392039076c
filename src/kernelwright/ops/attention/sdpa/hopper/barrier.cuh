// Includes the matrix products' header of this name.
#pragma once
#include "../../../matmul/gemm/hopper/barrier.cuh"
