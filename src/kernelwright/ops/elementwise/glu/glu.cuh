// Gated linear units: activation(gate) * up. Backwards take (gy, gate, up) and return the gradients
// of gate and up; the activation is recomputed rather than saved.
#pragma once
#include "../activations.cuh"
#include "kw/gelu.cuh"
#include "kw/map.cuh"

namespace kw {

KW_FORMULA(Swiglu, 2, 1, y[0] = silu<T>(x[0]) * x[1])
KW_FORMULA(SwigluBackward, 3, 2, const ValueAndSlope s = silu_and_slope<T>(x[1]);
           y[0] = x[0] * x[2] * s.slope, y[1] = x[0] * s.value)

template <bool TANH>
KW_FORMULA(Geglu, 2, 1, y[0] = gelu<T, TANH>(x[0]) * x[1])
template <bool TANH>
KW_FORMULA(GegluBackward, 3, 2, y[0] = x[0] * x[2] * gelu_slope<T, TANH>(x[1]),
           y[1] = x[0] * gelu<T, TANH>(x[1]))

}  // namespace kw
