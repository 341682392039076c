// Replaces NVIDIA's header of the same name; the declarations that programs use exist already.
#pragma once
