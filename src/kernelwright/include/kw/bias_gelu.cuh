// gelu(x + bias): the inputs of a formula are x and bias, of a backward gy, x and bias.
#pragma once
#include "kw/gelu.cuh"
#include "kw/map.cuh"

namespace kw {

template <bool TANH>
KW_FORMULA(BiasGelu, 2, 1, y[0] = gelu<T, TANH>(x[0] + x[1]))
template <bool TANH>
KW_FORMULA(BiasGeluBackward, 3, 1, y[0] = x[0] * gelu_slope<T, TANH>(x[1] + x[2]))

}  // namespace kw
