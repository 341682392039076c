// A call of a Python function from C++.
#pragma once
#include "plan.h"

namespace kw {

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

// The tensors that a function returns: one or a tuple, with None for those that are absent.
inline Tensors tensors_of(PyObject *returned) {
  Tensors found;
  const bool many = PyTuple_Check(returned);
  for (Py_ssize_t i = 0; i < (many ? PyTuple_GET_SIZE(returned) : 1); i++) {
    PyObject *one = many ? PyTuple_GET_ITEM(returned, i) : returned;
    found.push_back(one == Py_None ? at::Tensor() : THPVariable_Unpack(one));
  }
  return found;
}

// A function's results for the arguments. The caller holds the interpreter's lock.
inline Tensors call_python(PyObject *function, at::ArrayRef<Argument> given) {
  std::vector<Object> objects;
  std::vector<PyObject *> borrowed;
  for (const auto &a : given) {
    objects.emplace_back(a.tensor ? THPVariable_Wrap(*a.tensor) : object_of(a.value));
    if (!objects.back().it) throw_python_error();
    borrowed.push_back(objects.back().it);
  }
  const Object result(PyObject_Vectorcall(function, borrowed.data(), borrowed.size(), nullptr));
  if (!result.it) throw_python_error();
  return tensors_of(result.it);
}

}  // namespace kw
