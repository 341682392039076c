// Stands for NVIDIA's header of the same name; what kernels take from it is there already.
#pragma once
