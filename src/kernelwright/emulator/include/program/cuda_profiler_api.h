// Replaces NVIDIA's header of the same name.
#pragma once
extern "C" {
cudaError_t cudaProfilerStart();
cudaError_t cudaProfilerStop();
}
