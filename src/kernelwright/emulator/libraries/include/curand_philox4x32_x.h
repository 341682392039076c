// Replaces NVIDIA's header of the same name.
#pragma once
#include <curand_kernel.h>
