// PyTorch's operators, called as its rungs in Python call them (Rung.aten names the function).
#pragma once
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#ifdef KW_CUDA
#include <ATen/native/transformers/cuda/sdp_utils.h>
#include <ATen/ops/_scaled_dot_product_cudnn_attention.h>
#include <ATen/ops/_scaled_dot_product_cudnn_attention_backward.h>
#endif

#include "python_call.h"

namespace kw {

using Given = at::ArrayRef<Argument>;
// The results; null if the rung would call another of PyTorch's operators.
using AtenFunction = std::optional<Tensors> (*)(Given);

// The result of a schema that is absent for these arguments.
inline at::Tensor absent(const at::Tensor &like) {
  return empty({0}, {1}, like.scalar_type(), like.device());
}

// a, b, tf32
inline std::optional<Tensors> aten_matmul(Given given) {
  const at::Tensor &a = *given[0].tensor, &b = *given[1].tensor;
  return Tensors{a.dim() == 2 ? at::mm(a, b) : at::bmm(a, b)};
}

// x, weight, bias
inline std::optional<Tensors> aten_linear(Given given) {
  const at::Tensor &x = *given[0].tensor, *bias = given[2].tensor;
  const at::Tensor y = at::linear(x, *given[1].tensor, bias ? std::optional(*bias) : std::nullopt);
  return Tensors{y, absent(y)};
}

#ifdef KW_CUDA
// Whether cuDNN computes attention, which also depends on settings of the user.
inline bool is_cudnns(const at::Tensor &q, const at::Tensor &k, const at::Tensor &v, bool causal) {
  const sdp::sdp_params params{q, k, v, std::nullopt, 0.0, causal, q.size(1) != k.size(1)};
  return sdp::can_use_cudnn_attention(params, false);
}

// q, k, v, mask, seed, causal, mask_grad, scale, p
inline std::optional<Tensors> aten_attention(Given given) {
  const at::Tensor &q = *given[0].tensor, &k = *given[1].tensor, &v = *given[2].tensor;
  const bool causal = std::get<bool>(given[5].value);
  if (!is_cudnns(q, k, v, causal)) return std::nullopt;
  const auto results = at::_scaled_dot_product_cudnn_attention(
      q, k, v, std::nullopt, true, 0.0, causal, false, number('d', given[7].value).f64);
  return Tensors{std::get<0>(results), std::get<1>(results).squeeze(-1)};
}

// gy, q, k, v, y, lse, mask, seed, causal, mask_grad, scale, p
inline std::optional<Tensors> aten_attention_backward(Given given) {
  const at::Tensor &q = *given[1].tensor, &k = *given[2].tensor, &v = *given[3].tensor;
  const bool causal = std::get<bool>(given[8].value);
  if (!is_cudnns(q, k, v, causal)) return std::nullopt;
  const at::Tensor gy =
      given[0].tensor->stride(3) == 1 ? *given[0].tensor : given[0].tensor->contiguous();
  const at::Tensor unread = empty({}, {}, at::kLong, q.device());  // the seed of dropout
  const auto [gq, gk, gv] = at::_scaled_dot_product_cudnn_attention_backward(
      gy, q, k, v, *given[4].tensor, given[5].tensor->unsqueeze(-1), unread, unread, {}, {}, {},
      q.size(2), k.size(2), 0.0, causal, number('d', given[10].value).f64);
  return Tensors{gq, gk, gv, absent(q)};
}
#endif

inline AtenFunction aten_function(std::string_view name) {
  if (name == "matmul") return aten_matmul;
  if (name == "linear") return aten_linear;
#ifdef KW_CUDA
  if (name == "attention") return aten_attention;
  if (name == "attention_backward") return aten_attention_backward;
#endif
  return nullptr;
}

class AtenCall : public Runner {
 public:
  // `rung` is the function in Python. Results get these strides, or any if there are none.
  AtenCall(AtenFunction function, Object rung, std::vector<std::vector<int64_t>> strides)
      : function_(function), rung_(std::move(rung)), strides_(std::move(strides)) {}

  Tensors run(Given given) const override {
    auto results = in_cpp(given);
    return results ? std::move(*results) : in_python(given);
  }

  ~AtenCall() override {
    const Locked locked;
    rung_ = Object();
  }

 private:
  AtenFunction function_;
  Object rung_;
  std::vector<std::vector<int64_t>> strides_;

  std::optional<Tensors> in_cpp(Given given) const {
    const at::AutoDispatchBelowADInplaceOrView below;
    auto results = function_(given);
    for (size_t i = 0; results && i < strides_.size(); i++) {
      at::Tensor &t = (*results)[i];
      if (t.strides() == at::IntArrayRef(strides_[i])) continue;
      t = empty(t.sizes(), strides_[i], t.scalar_type(), t.device()).copy_(t);
    }
    return results;
  }

  Tensors in_python(Given given) const {
    const Locked locked;
    const at::NoGradGuard off;
    return call_python(rung_.it, given);
  }
};

}  // namespace kw
