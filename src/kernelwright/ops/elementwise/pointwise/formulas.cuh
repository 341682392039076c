// The elementwise operators, one formula per line. T is the dtype that results are stored as.
#pragma once
#include "../activations.cuh"
#include "kw/map.cuh"

namespace kw {

KW_FORMULA(Add, 2, 1, y[0] = x[0] + x[1])
KW_FORMULA(Mul, 2, 1, y[0] = x[0] * x[1])
KW_FORMULA(Relu, 1, 1, y[0] = x[0] <= 0.0f ? 0.0f : x[0])  // NaN remains NaN, unlike with fmaxf
KW_FORMULA(SquaredRelu, 1, 1, y[0] = x[0] <= 0.0f ? 0.0f : x[0] * x[0])
KW_FORMULA(Silu, 1, 1, y[0] = silu<T>(x[0]))
KW_FORMULA(Sigmoid, 1, 1, y[0] = sigmoid<T>(x[0]))
KW_FORMULA(Tanh, 1, 1, y[0] = tanh<T>(x[0]))

// Gradients: first the incoming one, then the values that the forward saved.
KW_FORMULA(MulBackward, 3, 2, y[0] = x[0] * x[2], y[1] = x[0] * x[1])
KW_FORMULA(ReluBackward, 2, 1, y[0] = x[1] <= 0.0f ? 0.0f : x[0])
KW_FORMULA(SquaredReluBackward, 2, 1, y[0] = x[0] * (x[1] <= 0.0f ? 0.0f : x[1] + x[1]))
KW_FORMULA(SiluBackward, 2, 1, y[0] = x[0] * silu_and_slope<T>(x[1]).slope)
KW_FORMULA(SigmoidBackward, 2, 1, y[0] = x[0] * (1.0f - x[1]) * x[1])
KW_FORMULA(TanhBackward, 2, 1, y[0] = x[0] * fmaf(-x[1], x[1], 1.0f))

}  // namespace kw
