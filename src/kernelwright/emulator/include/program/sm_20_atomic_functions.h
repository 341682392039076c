// Stands for NVIDIA's header of the same name; what programs take from it is there already.
#pragma once
