// The bound plans of calls, by the properties of the calls' arguments.
#pragma once
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>

#include <deque>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "plan.h"

namespace kw {

// Whether a tensor is not wrapped, strided, on a CPU or a CUDA device, and neither lazily negated
// nor conjugated.
inline bool is_plain(const at::Tensor &t) {
  using K = c10::DispatchKey;
  static const uint64_t plain =
      c10::DispatchKeySet({K::CPU, K::CUDA, K::ADInplaceOrView, K::AutogradCPU, K::AutogradCUDA,
                           K::AutocastCPU, K::AutocastCUDA})
          .raw_repr();
  return t.defined() && !(t.key_set().raw_repr() & ~plain);
}

// Whether a mode or a transform of torch.func may intercept operators in this thread.
inline bool intercepted() {
  static const uint64_t included = c10::default_included_set.raw_repr();
  static const uint64_t excluded =
      (c10::default_excluded_set | c10::autograd_dispatch_keyset_with_ADInplaceOrView).raw_repr();
  const auto now = c10::impl::tls_local_dispatch_key_set();
  return (now.included_.raw_repr() & ~included) || (now.excluded_.raw_repr() & ~excluded) ||
         c10::impl::TorchDispatchModeTLS::stack_len() > 0;
}

// None, a bool, a 64-bit int, a float, a string, or ints; std::nullopt for any other object.
inline std::optional<Scalar> scalar_of(PyObject *object) {
  if (object == Py_None) return Scalar();
  if (PyBool_Check(object)) return Scalar(object == Py_True);
  if (PyFloat_CheckExact(object)) return Scalar(PyFloat_AS_DOUBLE(object));
  if (PyLong_CheckExact(object)) {
    int overflow;
    const long long number = PyLong_AsLongLongAndOverflow(object, &overflow);
    return overflow ? std::nullopt : std::optional(Scalar((int64_t)number));
  }
  if (PyUnicode_CheckExact(object)) {
    Py_ssize_t size;
    const char *text = PyUnicode_AsUTF8AndSize(object, &size);
    if (text) return Scalar(std::string(text, size));
    PyErr_Clear();
  }
  if (!PyList_CheckExact(object) && !PyTuple_CheckExact(object)) return std::nullopt;
  std::vector<int64_t> numbers;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(object); i++) {
    const auto item = scalar_of(PySequence_Fast_GET_ITEM(object, i));
    if (!item || !std::holds_alternative<int64_t>(*item)) return std::nullopt;
    numbers.push_back(std::get<int64_t>(*item));
  }
  return Scalar(std::move(numbers));
}

// Arguments of a schema's kinds (dispatch/generated.py). False if C++ does not support an object.
inline bool parse(const std::string &kinds, PyObject *const *given, Arguments &out) {
  for (size_t i = 0; i < kinds.size(); i++) {
    Argument a;
    const bool may_be_none = kinds[i] == '?' && given[i] == Py_None;
    if ((kinds[i] == 't' || kinds[i] == '?') && !may_be_none) {
      if (!THPVariable_CheckExact(given[i])) return false;
      a.tensor = &THPVariable_Unpack(given[i]);
      if (!is_plain(*a.tensor)) return false;
    } else if (!may_be_none) {
      auto value = scalar_of(given[i]);
      if (!value) return false;
      a.value = std::move(*value);
    }
    out.push_back(std::move(a));
  }
  return true;
}

// A call's key: calls with equal bytes use the same bound plan.
class Key {
 public:
  Key(const std::string &kinds, at::ArrayRef<Argument> given) {
    for (size_t i = 0; i < given.size(); i++) {
      const Argument &a = given[i];
      if (a.tensor)
        add(*a.tensor);
      else if (kinds[i] != '-')
        std::visit([this, &a](const auto &value) { add(a.value.index(), value); }, a.value);
    }
  }
  std::string_view view() const { return {bytes_.data(), bytes_.size()}; }

 private:
  c10::SmallVector<char, 256> bytes_;

  void raw(const void *from, size_t size) {
    const char *start = static_cast<const char *>(from);
    bytes_.append(start, start + size);
  }
  void add(const at::Tensor &t) {
    const auto device = t.device();
    const uint8_t facts[6] = {0xFF,
                              (uint8_t)device.type(),
                              (uint8_t)device.index(),
                              (uint8_t)t.scalar_type(),
                              (uint8_t)((uintptr_t)t.mutable_data_ptr() & 15),
                              (uint8_t)t.dim()};
    raw(facts, sizeof facts);
    raw(t.sizes().data(), t.dim() * sizeof(int64_t));
    raw(t.strides().data(), t.dim() * sizeof(int64_t));
  }
  void add(size_t kind, std::monostate) { bytes_.push_back((char)kind); }
  void add(size_t kind, bool value) { add(kind, (int64_t)value); }
  void add(size_t kind, int64_t value) {
    bytes_.push_back((char)kind);
    raw(&value, sizeof value);
  }
  void add(size_t kind, double value) {
    bytes_.push_back((char)kind);
    raw(&value, sizeof value);
  }
  void add(size_t kind, const std::string &value) {
    add(kind, (int64_t)value.size());
    raw(value.data(), value.size());
  }
  void add(size_t kind, const std::vector<int64_t> &value) {
    add(kind, (int64_t)value.size());
    raw(value.data(), value.size() * sizeof(int64_t));
  }
};

// What is bound: a plan or a call of ATen, or a Python function.
struct Bound {
  std::shared_ptr<const Runner> runner;
  Object function;
};

// Threads of autograd read it without the interpreter's lock; threads with the lock write it.
class Table {
 public:
  std::shared_ptr<const Runner> runner(const Key &key) const {
    const std::lock_guard lock(mutex_);
    const auto found = known_.find(key.view());
    return found == known_.end() ? nullptr : found->second.runner;
  }

  // A copy; with neither if nothing is bound yet.
  Bound bound(const Key &key) const {
    const std::lock_guard lock(mutex_);
    const auto found = known_.find(key.view());
    if (found == known_.end()) return {};
    return {found->second.runner, Object::borrowed(found->second.function.it)};
  }

  void keep(const Key &key, Bound bound) {
    std::vector<Bound> dropped;  // outlives the lock: dropping a function may run Python
    const std::lock_guard lock(mutex_);
    while (known_.size() >= MOST_KNOWN) dropped.push_back(take_oldest());
    const auto [place, fresh] = known_.try_emplace(std::string(key.view()));
    if (fresh) order_.push_back(&place->first);
    std::swap(place->second, bound);
    dropped.push_back(std::move(bound));
  }

  size_t plans() const {
    const std::lock_guard lock(mutex_);
    size_t found = 0;
    for (const auto &[_, bound] : known_) found += bound.runner != nullptr;
    return found;
  }

  void clear() {
    std::vector<Bound> dropped;
    const std::lock_guard lock(mutex_);
    while (!order_.empty()) dropped.push_back(take_oldest());
  }

 private:
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view s) const { return std::hash<std::string_view>()(s); }
  };
  static constexpr size_t MOST_KNOWN = 4096;

  Bound take_oldest() {
    const auto oldest = known_.find(*order_.front());
    order_.pop_front();
    Bound bound = std::move(oldest->second);
    known_.erase(oldest);
    return bound;
  }

  mutable std::mutex mutex_;
  std::unordered_map<std::string, Bound, Hash, std::equal_to<>> known_;
  std::deque<const std::string *> order_;  // the oldest first
};

}  // namespace kw
