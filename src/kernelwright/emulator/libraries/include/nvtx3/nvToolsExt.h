// Replaces NVIDIA's header of the same name.
#pragma once
#include <nvToolsExt.h>
