// Replaces NVIDIA's header of the same name.
#pragma once
#include <cublas_v2.h>
