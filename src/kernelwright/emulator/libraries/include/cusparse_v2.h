// Stands for the header of the same name of older toolkits.
#pragma once
#include <cusparse.h>
