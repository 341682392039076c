// An operator's node in autograd's graph; dispatch/autograd.py does the same in Python.
#pragma once
#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/dynamo/compiled_autograd.h>

#include "python_call.h"
#include "table.h"

namespace kw {

// How the gradients of an operator's arguments are computed, as dispatch/native_calls.py writes it:
// by calls of operators, most often of one, its backward.
struct Derivative {
  struct Source {
    char code;  // g gradient of a result; o the same, or None if it has none; n the same, without
                // which the call is not made; a saved argument, v its value; r saved result;
                // c constant
    int place;
    bool transposed;  // the last two dimensions
    Scalar constant;
  };
  struct Gradient {
    int argument, result;
    bool transposed;
  };
  struct Call {
    std::vector<Source> sources;
    std::vector<Gradient> gradients;
    int matrix;    // the call is made only if this argument is stored by columns, or by rows;
    bool columns;  // -1 for any
    std::string kinds;
    std::shared_ptr<Table> table;  // of the operator's plans
    PyObject *run, *call;          // the operator, and the same where something may intercept calls
  };
  std::string name;  // of the node
  std::vector<Call> calls;
  std::vector<int> passed;  // for each argument: the result whose gradient is its own, or -1
  std::vector<bool> has;    // whether an argument has a gradient
  std::vector<bool> fixed;  // results without a gradient
  std::vector<std::pair<int, Scalar>> when;  // arguments that must have these values
  bool alike;                                // all tensors must have the same shape and dtype
  bool half;  // all tensors must have 16 bits, or 64, and autocast would not cast them
};

// Whether a tensor's Python object, if it has one, is a torch.Tensor and not of a subclass.
inline bool is_exact(const at::Tensor &t) {
  PyObject *object = t.unsafeGetTensorImpl()->pyobj_slot()->load_pyobj();
  return !object || THPVariable_CheckExact(object);
}

class Node : public torch::autograd::Node {
 public:
  // Saves the tensors and values that the derivative's calls need. The history of `results` is set
  // before.
  void keep(at::ArrayRef<Argument> given, const Tensors &results) {
    for (const auto &call : derivative->calls) {
      if (!is_made(call, given)) continue;
      calls_.push_back(&call);
      for (const auto &s : call.sources) {
        if (s.code == 'v') {
          values_.push_back(given[s.place].value);
        } else if (s.code == 'r') {
          tensors_.emplace_back(results[s.place], true);
          is_output_.push_back(true);
        } else if (s.code == 'a') {
          const at::Tensor *t = given[s.place].tensor;
          tensors_.emplace_back(t ? *t : at::Tensor(), false);
          is_output_.push_back(false);
        }
      }
    }
  }

  std::string name() const override { return derivative->name; }

  void release_variables() override {
    const std::lock_guard lock(mutex_);
    for (auto &t : tensors_) t.reset_data();
  }

  // For compiled autograd, which traces `apply` with fake tensors; the backward is then called as
  // an operator.
  void compiled_args(torch::dynamo::autograd::CompiledNodeArgs &args) const override {
    args.collect(derivative->name);
    for (const auto *call : calls_) args.collect((int64_t)(call - derivative->calls.data()));
    for (size_t i = 0; i < tensors_.size(); i++) args.collect(tensors_[i], is_output_[i]);
    for (const auto &v : values_) {
      args.collect((int64_t)v.index());
      if (v.index() == 1) args.collect(std::get<bool>(v));
      if (v.index() == 2) args.collect(std::get<int64_t>(v));
      if (v.index() == 3) args.collect(std::get<double>(v));
      if (v.index() == 4) args.collect(std::get<std::string>(v));
      if (v.index() == 5) args.collect(std::get<std::vector<int64_t>>(v));
    }
  }

  torch::autograd::variable_list apply_with_saved(
      const torch::autograd::variable_list &incoming,
      torch::dynamo::autograd::SwapSavedVariables &saved) override {
    for (auto &t : tensors_) saved.before(t);
    auto gradients = apply(torch::autograd::variable_list(incoming));
    for (auto &t : tensors_) saved.after(t);
    return gradients;
  }

  std::shared_ptr<const Derivative> derivative;
  c10::SmallVector<int, 4> inputs;  // the argument of each edge

 protected:
  torch::autograd::variable_list apply(torch::autograd::variable_list &&incoming) override {
    auto prepared = unpacked(incoming);
    torch::autograd::variable_list gradients(num_outputs());
    for (size_t i = 0; i < gradients.size(); i++) {
      const int result = derivative->passed[inputs[i]];
      if (result >= 0 && should_compute_output(i)) gradients[i] = incoming[result];
    }
    for (size_t c = 0; c < calls_.size(); c++) {
      const auto &call = *calls_[c];
      if (!prepared[c].complete || !is_wanted(call)) continue;
      const Tensors found = run(call, prepared[c]);
      for (const auto &g : call.gradients) {
        const int edge = edge_of(g.argument);
        if (edge < 0 || !should_compute_output(edge)) continue;
        gradients[edge] = g.transposed ? found[g.result].mT() : found[g.result];
      }
    }
    return gradients;
  }

 private:
  // A call's arguments, and what holds their tensors.
  struct Prepared {
    c10::SmallVector<at::Tensor, 8> held;
    Arguments arguments;
    bool complete = true;  // no gradient is missing without which it is not made
    bool direct;           // nothing intercepts it
  };

  c10::SmallVector<const Derivative::Call *, 3> calls_;
  c10::SmallVector<torch::autograd::SavedVariable, 4> tensors_;
  c10::SmallVector<bool, 4> is_output_;
  c10::SmallVector<Scalar, 2> values_;

  static bool is_made(const Derivative::Call &call, at::ArrayRef<Argument> given) {
    if (call.matrix >= 0) {
      const at::Tensor &t = *given[call.matrix].tensor;
      if ((t.stride(-2) == 1 && t.stride(-1) > 1) != call.columns) return false;
    }
    for (const auto &g : call.gradients)
      if (given[g.argument].tensor && given[g.argument].tensor->requires_grad()) return true;
    return false;
  }

  int edge_of(int argument) const {
    for (size_t i = 0; i < inputs.size(); i++)
      if (inputs[i] == argument) return (int)i;
    return -1;
  }

  bool is_wanted(const Derivative::Call &call) const {
    for (const auto &g : call.gradients) {
      const int edge = edge_of(g.argument);
      if (edge >= 0 && should_compute_output(edge)) return true;
    }
    return false;
  }

  c10::SmallVector<Prepared, 3> unpacked(torch::autograd::variable_list &incoming) {
    c10::SmallVector<Prepared, 3> prepared(calls_.size());
    const bool plain = !at::GradMode::is_enabled() && !intercepted();
    const std::lock_guard lock(mutex_);
    size_t tensor = 0, value = 0;
    for (size_t c = 0; c < calls_.size(); c++) {
      Prepared &p = prepared[c];
      p.direct = plain;
      p.held.reserve(calls_[c]->sources.size());
      for (const auto &s : calls_[c]->sources) {
        Argument a;
        if (s.code == 'v' || s.code == 'c') {
          a.value = s.code == 'c' ? s.constant : values_[value++];
        } else {
          p.held.push_back(s.code == 'a' || s.code == 'r'
                               ? tensors_[tensor++].unpack(s.code == 'r' ? getptr() : nullptr)
                               : gradient(s, incoming[s.place]));
          at::Tensor &t = p.held.back();
          if (t.defined()) {
            p.direct = p.direct && is_plain(t) && is_exact(t);
            if (s.transposed) t = t.mT();
            a.tensor = &t;
          } else if (s.code == 'n') {
            p.complete = false;
          }
        }
        p.arguments.push_back(std::move(a));
      }
    }
    return prepared;
  }

  // A result that is absent has the shape (0,); some callers pass a gradient for it too.
  at::Tensor gradient(const Derivative::Source &source, at::Tensor &incoming) const {
    const bool absent = incoming.defined() && incoming.dim() == 1 && incoming.numel() == 0;
    if (absent && source.code == 'o') incoming = at::Tensor();
    if (!incoming.defined() && source.code == 'g')
      incoming = input_metadata(source.place).zeros_like();
    return incoming;
  }

  static Tensors run(const Derivative::Call &call, const Prepared &prepared) {
    Arguments keyed = prepared.arguments;
    keyed.emplace_back();  // no rung
    if (prepared.direct)
      if (const auto runner = call.table->runner(Key(call.kinds, keyed)))
        return runner->run(prepared.arguments);
    const Locked locked;
    return call_python(prepared.direct ? call.run : call.call, keyed);
  }
};

// torch 2.11 counts references to nodes in std::shared_ptr, torch 2.13 in the nodes.
template <typename Pointer> Pointer make_node() {
  if constexpr (std::is_same_v<Pointer, std::shared_ptr<torch::autograd::Node>>)
    return Pointer(new Node(), [](auto *node) { deleteNode(node); });
  else
    return c10::make_intrusive<Node>();
}

inline bool has_value(const Argument &argument, const Scalar &value) {
  return !argument.tensor && argument.value == value;
}

// Whether products of a tensor neither depend on PyTorch's setting of tf32 nor are cast.
inline bool is_not_cast(const at::Tensor &t) {
  const auto type = t.device().type();
  return t.scalar_type() != at::kFloat &&
         (!at::autocast::is_autocast_enabled(type) ||
          at::autocast::get_autocast_dtype(type) == t.scalar_type());
}

// Whether a derivative applies to a call: not if a tensor without a gradient requires one, which
// Python refuses.
inline bool holds(const Derivative &d, at::ArrayRef<Argument> given) {
  for (const auto &[place, value] : d.when)
    if (!has_value(given[place], value)) return false;
  for (size_t i = 0; i < given.size(); i++) {
    const at::Tensor *t = given[i].tensor;
    if (t && !d.has[i] && t->requires_grad()) return false;
    if (t && d.half && !is_not_cast(*t)) return false;
  }
  const at::Tensor *first = nullptr;
  for (const auto &a : given) {
    if (!d.alike || !a.tensor) continue;
    if (!first) first = a.tensor;
    if (a.tensor->sizes() != first->sizes() || a.tensor->scalar_type() != first->scalar_type())
      return false;
  }
  return true;
}

// Makes results differentiable.
inline void record(std::shared_ptr<const Derivative> derivative, at::ArrayRef<Argument> given,
                   const Tensors &results) {
  auto pointer = make_node<decltype(std::declval<torch::autograd::Node &>().getptr())>();
  Node &node = static_cast<Node &>(*pointer);
  for (size_t i = 0; i < given.size(); i++) {
    if (!given[i].tensor) continue;
    node.add_next_edge(torch::autograd::impl::gradient_edge(*given[i].tensor));
    node.inputs.push_back((int)i);
  }
  node.derivative = std::move(derivative);
  for (size_t i = 0; i < results.size(); i++) {
    const auto place = node.add_input_metadata(results[i]);
    if (!node.derivative->fixed[i])
      torch::autograd::impl::set_gradient_edge(results[i], {pointer, place});
  }
  node.keep(given, results);
}

}  // namespace kw
