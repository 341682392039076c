// An operator's node in autograd's graph; dispatch/autograd.py does the same in Python.
#pragma once
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/dynamo/compiled_autograd.h>

#include "table.h"

namespace kw {

// How a backward is called. Its arguments are gradients and saved arguments and results of the
// forward.
struct Derivative {
  struct Source {
    char code;  // g gradient of a result; o the same, or None if it has none; a saved argument,
                // v its value; r saved result
    int place;
  };
  std::string name;   // of the node
  int alone;          // the one argument that requires a gradient; -1 for any
  std::string kinds;  // of the backward's arguments
  std::vector<Source> sources;
  std::vector<int> gradients;    // for each of the forward's arguments: the backward's result,
                                 // -2 - r for the gradient of result r, or -1 for none
  std::vector<bool> fixed;       // results without a gradient
  std::shared_ptr<Table> table;  // of the backward's plans
  PyObject *run, *call;          // the backward, and the same where something may intercept calls
};

inline PyObject *object_of(const Scalar &value) {
  switch (value.index()) {
    case 1:
      return PyBool_FromLong(std::get<bool>(value));
    case 2:
      return PyLong_FromLongLong(std::get<int64_t>(value));
    case 3:
      return PyFloat_FromDouble(std::get<double>(value));
    case 4:
      return PyUnicode_FromStringAndSize(std::get<std::string>(value).data(),
                                         (Py_ssize_t)std::get<std::string>(value).size());
    case 5: {
      const auto &numbers = std::get<std::vector<int64_t>>(value);
      PyObject *tuple = PyTuple_New((Py_ssize_t)numbers.size());
      for (size_t i = 0; tuple && i < numbers.size(); i++)
        PyTuple_SET_ITEM(tuple, (Py_ssize_t)i, PyLong_FromLongLong(numbers[i]));
      return tuple;
    }
    default:
      Py_RETURN_NONE;
  }
}

// A function's results for the arguments, without a rung. The caller holds the interpreter's lock.
inline Tensors call_python(PyObject *function, at::ArrayRef<Argument> given) {
  std::vector<Object> objects;
  std::vector<PyObject *> borrowed;
  for (const auto &a : given) {
    objects.emplace_back(a.tensor ? THPVariable_Wrap(*a.tensor) : object_of(a.value));
    if (!objects.back().it) throw_python_error();
    borrowed.push_back(objects.back().it);
  }
  borrowed.push_back(Py_None);
  const Object result(PyObject_Vectorcall(function, borrowed.data(), borrowed.size(), nullptr));
  if (!result.it) throw_python_error();
  Tensors found;
  const bool many = PyTuple_Check(result.it);
  for (Py_ssize_t i = 0; i < (many ? PyTuple_GET_SIZE(result.it) : 1); i++) {
    PyObject *one = many ? PyTuple_GET_ITEM(result.it, i) : result.it;
    found.push_back(one == Py_None ? at::Tensor() : THPVariable_Unpack(one));
  }
  return found;
}

// Whether a tensor's Python object, if it has one, is a torch.Tensor and not of a subclass.
inline bool is_exact(const at::Tensor &t) {
  PyObject *object = t.unsafeGetTensorImpl()->pyobj_slot()->load_pyobj();
  return !object || THPVariable_CheckExact(object);
}

class Node : public torch::autograd::Node {
 public:
  // Saves the tensors and values that the derivative needs. The history of `results` is set before.
  void keep(at::ArrayRef<Argument> given, const Tensors &results) {
    for (const auto &s : derivative->sources) {
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

  std::string name() const override { return derivative->name; }

  void release_variables() override {
    const std::lock_guard lock(mutex_);
    for (auto &t : tensors_) t.reset_data();
  }

  // For compiled autograd, which traces `apply` with fake tensors; the backward is then called as
  // an operator.
  void compiled_args(torch::dynamo::autograd::CompiledNodeArgs &args) const override {
    args.collect(derivative->name);
    args.collect((int64_t)derivative->alone);
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
    const Derivative &d = *derivative;
    c10::SmallVector<at::Tensor, 8> held;
    held.reserve(d.sources.size());
    Arguments arguments;
    bool direct = !at::GradMode::is_enabled() && !intercepted();
    {
      const std::lock_guard lock(mutex_);
      size_t tensor = 0, value = 0;
      for (const auto &s : d.sources) {
        Argument a;
        if (s.code == 'v') {
          a.value = values_[value++];
        } else {
          held.push_back(s.code == 'a' || s.code == 'r'
                             ? tensors_[tensor++].unpack(s.code == 'r' ? getptr() : nullptr)
                             : gradient(s, incoming[s.place]));
          if (held.back().defined()) {
            a.tensor = &held.back();
            direct = direct && is_plain(*a.tensor) && is_exact(*a.tensor);
          }
        }
        arguments.push_back(std::move(a));
      }
    }
    const Tensors found = run(arguments, direct);
    torch::autograd::variable_list gradients(num_outputs());
    for (size_t i = 0; i < gradients.size(); i++) {
      const int result = d.gradients[inputs[i]];
      if (result == -1 || !should_compute_output(i)) continue;
      gradients[i] = result >= 0 ? found[result] : incoming[-2 - result];
    }
    return gradients;
  }

 private:
  c10::SmallVector<torch::autograd::SavedVariable, 4> tensors_;
  c10::SmallVector<bool, 4> is_output_;
  c10::SmallVector<Scalar, 2> values_;

  // A result that is absent has the shape (0,); some callers pass a gradient for it too.
  at::Tensor gradient(const Derivative::Source &source, at::Tensor &incoming) const {
    const bool absent = incoming.defined() && incoming.dim() == 1 && incoming.numel() == 0;
    if (absent && source.code == 'o') incoming = at::Tensor();
    if (!incoming.defined() && source.code == 'g')
      incoming = input_metadata(source.place).zeros_like();
    return incoming;
  }

  Tensors run(const Arguments &arguments, bool direct) const {
    if (direct) {
      Arguments keyed = arguments;
      keyed.emplace_back();  // no rung
      const Key key(derivative->kinds, keyed);
      if (const auto plan = derivative->table->plan(key)) return plan->run(arguments);
    }
    const Locked locked;
    return call_python(direct ? derivative->run : derivative->call, arguments);
  }
};

// torch 2.11 counts references to nodes in std::shared_ptr, torch 2.13 in the nodes.
template <typename Pointer> Pointer make_node() {
  if constexpr (std::is_same_v<Pointer, std::shared_ptr<torch::autograd::Node>>)
    return Pointer(new Node(), [](auto *node) { deleteNode(node); });
  else
    return c10::make_intrusive<Node>();
}

// Whether a derivative applies to a call: not if a tensor without a gradient requires one, which
// Python refuses. The derivative for one argument applies if no other tensor requires a gradient
// and all have the same shape and dtype.
inline bool holds(const Derivative &d, at::ArrayRef<Argument> given) {
  if (d.alone < 0) {
    for (size_t i = 0; i < given.size(); i++)
      if (given[i].tensor && d.gradients[i] == -1 && given[i].tensor->requires_grad()) return false;
    return true;
  }
  const at::Tensor &one = *given[d.alone].tensor;
  for (size_t i = 0; i < given.size(); i++) {
    const at::Tensor *t = given[i].tensor;
    if (t && (((int)i != d.alone && t->requires_grad()) || t->sizes() != one.sizes() ||
              t->scalar_type() != one.scalar_type()))
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
