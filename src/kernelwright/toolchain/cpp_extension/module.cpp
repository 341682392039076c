// The extension module kernelwright_calls: a call of an operator from its arguments to its
// launches, and its node in autograd's graph, without Python.
//
//     plan(...), aten_call(name, ...)     a Runner: plan.h, aten_calls.h
//     Caller(kinds, bound, run)           caller(argument, ..., rung)
//     Entry(caller, ...)                  entry(argument, ..., rung), with autograd
#include "aten_calls.h"
#include "node.h"

namespace kw {
namespace {

// clang-format off
struct RunnerObject {
  PyObject_HEAD
  vectorcallfunc call;
  std::shared_ptr<const Runner> runner;
};

struct Caller {
  PyObject_HEAD
  vectorcallfunc call;
  std::string kinds;               // as in dispatch/generated.py, and v for the rung
  std::shared_ptr<Table> table;
  PyObject *bound, *run;
};

struct Entry {
  PyObject_HEAD
  vectorcallfunc call;
  Caller *caller;
  PyObject *overrides, *forward_mode;
  std::string name;
  std::vector<std::shared_ptr<const Derivative>> derivatives;
};
// clang-format on

extern PyTypeObject runner_type, caller_type, entry_type;
PyObject *current_level;  // "_current_level"

PyObject *wrapped(Tensors &&results) {
  if (results.empty()) Py_RETURN_NONE;
  if (results.size() == 1) return THPVariable_Wrap(std::move(results[0]));
  PyObject *tuple = PyTuple_New((Py_ssize_t)results.size());
  for (size_t i = 0; tuple && i < results.size(); i++) {
    PyObject *one = THPVariable_Wrap(std::move(results[i]));
    if (!one) {
      Py_DECREF(tuple);
      return nullptr;
    }
    PyTuple_SET_ITEM(tuple, (Py_ssize_t)i, one);
  }
  return tuple;
}

Tensors run(const Runner &runner, at::ArrayRef<Argument> given) {
  const Unlocked unlocked;
  return runner.run(given);
}

// Calls a runner alone, with the arguments of the function that `gpu_executor` generates.
PyObject *call_runner(PyObject *self, PyObject *const *args, size_t count, PyObject *keywords) {
  HANDLE_TH_ERRORS
  TORCH_CHECK_TYPE(!keywords, "a runner takes no keywords");
  Arguments given;
  for (Py_ssize_t i = 0; i < PyVectorcall_NARGS(count); i++) {
    Argument a;
    if (THPVariable_Check(args[i])) {
      a.tensor = &THPVariable_Unpack(args[i]);
    } else if (auto value = scalar_of(args[i])) {
      a.value = std::move(*value);
    }
    given.push_back(std::move(a));
  }
  const auto runner = reinterpret_cast<RunnerObject *>(self)->runner;
  return wrapped(run(*runner, given));
  END_HANDLE_TH_ERRORS
}

// The bound plan or function for these arguments and rung; binds and stores it in the first call.
Bound bound_to(const Caller &c, const Key &key, PyObject *const *args) {
  Bound bound = c.table->bound(key);
  if (bound.runner || bound.function.it) return bound;
  Object found(PyObject_Vectorcall(c.bound, args, c.kinds.size(), nullptr));
  if (!found.it) throw_python_error();
  if (Py_IS_TYPE(found.it, &runner_type))
    bound.runner = reinterpret_cast<RunnerObject *>(found.it)->runner;
  else
    bound.function = std::move(found);
  c.table->keep(key, {bound.runner, Object::borrowed(bound.function.it)});
  return bound;
}

PyObject *call_caller(PyObject *self, PyObject *const *args, size_t count, PyObject *keywords) {
  HANDLE_TH_ERRORS
  const Caller &c = *reinterpret_cast<Caller *>(self);
  const size_t given = PyVectorcall_NARGS(count);
  TORCH_CHECK_TYPE(given == c.kinds.size() && !keywords, c.kinds.size() - 1,
                   " arguments and a rung are needed, ", given, " given");
  Arguments arguments;
  if (!parse(c.kinds, args, arguments)) return PyObject_Vectorcall(c.run, args, given, nullptr);
  const Bound bound = bound_to(c, Key(c.kinds, arguments), args);
  if (bound.runner)
    return wrapped(
        run(*bound.runner, at::ArrayRef<Argument>(arguments.data(), arguments.size() - 1)));
  return PyObject_Vectorcall(bound.function.it, args, given - 1, nullptr);
  END_HANDLE_TH_ERRORS
}

// Whether forward-mode differentiation is on; -1 with an exception set.
int in_forward_mode(const Entry &e) {
  PyObject *level = PyDict_GetItemWithError(e.forward_mode, current_level);
  if (!level) return PyErr_Occurred() ? -1 : 0;
  const long number = PyLong_AsLong(level);
  return number == -1 && PyErr_Occurred() ? -1 : number >= 0;
}

bool wants_gradient(at::ArrayRef<Argument> given) {
  for (const auto &a : given)
    if (a.tensor && a.tensor->requires_grad()) return true;
  return false;
}

// The first derivative that applies to a call; null if none does.
std::shared_ptr<const Derivative> derivative_of(const Entry &e, at::ArrayRef<Argument> given) {
  for (const auto &d : e.derivatives)
    if (holds(*d, given)) return d;
  return nullptr;
}

// The results of a Python function, which autograd does not see; null if one of them shares memory
// with an argument, which only Python's autograd function can tell from a result of its own.
std::optional<Tensors> run_function(PyObject *function, PyObject *const *args, size_t count,
                                    at::ArrayRef<Argument> given) {
  const at::NoGradGuard off;
  const Object result(PyObject_Vectorcall(function, args, count, nullptr));
  if (!result.it) throw_python_error();
  Tensors results = tensors_of(result.it);
  for (const auto &r : results)
    for (const auto &a : given)
      if (!r.defined() || (a.tensor && r.is_alias_of(*a.tensor))) return std::nullopt;
  return results;
}

// Whether autocast may cast tensors of the arguments' device.
bool may_cast(at::ArrayRef<Argument> given) {
  for (const auto &a : given)
    if (a.tensor) return at::autocast::is_autocast_enabled(a.tensor->device().type());
  return false;
}

// NotImplemented for calls that run in Python: intercepted calls, calls with a named rung, tensors
// that C++ does not support, results that share memory with arguments, and tensors that have no
// gradient but require one. If the rung is True, also for calls unlike all that have run before,
// and under autocast: the arguments' checks in Python, which then cast, are left out.
PyObject *call_entry(PyObject *self, PyObject *const *args, size_t count, PyObject *keywords) {
  HANDLE_TH_ERRORS
  const Entry &e = *reinterpret_cast<Entry *>(self);
  const Caller &c = *e.caller;
  const size_t given = PyVectorcall_NARGS(count);
  TORCH_CHECK_TYPE(given == c.kinds.size() && !keywords, c.kinds.size() - 1,
                   " arguments and a rung are needed, ", given, " given");
  PyObject *rung = args[given - 1];
  const int forward_mode = in_forward_mode(e);
  if (forward_mode < 0) return nullptr;
  const bool repeated = rung == Py_True;
  if (forward_mode || !(repeated || rung == Py_False || rung == Py_None) ||
      PyDict_GET_SIZE(e.overrides) || intercepted())
    Py_RETURN_NOTIMPLEMENTED;
  c10::SmallVector<PyObject *, 12> named(args, args + given);
  named.back() = Py_None;
  Arguments arguments;
  if (!parse(c.kinds, named.data(), arguments)) Py_RETURN_NOTIMPLEMENTED;
  if (repeated && may_cast(arguments)) Py_RETURN_NOTIMPLEMENTED;
  const bool differentiable = at::GradMode::is_enabled() && wants_gradient(arguments);
  const auto operands = at::ArrayRef<Argument>(arguments.data(), arguments.size() - 1);
  const auto derivative = differentiable ? derivative_of(e, operands) : nullptr;
  if (differentiable && !derivative) Py_RETURN_NOTIMPLEMENTED;
  const Key key(c.kinds, arguments);
  const Bound bound = repeated ? c.table->bound(key) : bound_to(c, key, named.data());
  if (!bound.runner && !bound.function.it) Py_RETURN_NOTIMPLEMENTED;
  if (!differentiable) {
    if (bound.runner) return wrapped(run(*bound.runner, operands));
    return PyObject_Vectorcall(bound.function.it, args, given - 1, nullptr);
  }
  RECORD_FUNCTION(e.name, c10::ArrayRef<const c10::IValue>{}, (int64_t)at::sequence_number::peek());
  auto results = bound.runner ? std::optional(run(*bound.runner, operands))
                              : run_function(bound.function.it, args, given - 1, operands);
  if (!results) Py_RETURN_NOTIMPLEMENTED;
  record(derivative, operands, *results);
  return wrapped(std::move(*results));
  END_HANDLE_TH_ERRORS
}

template <typename T> T *allocated(PyTypeObject *type, vectorcallfunc call) {
  T *made = reinterpret_cast<T *>(type->tp_alloc(type, 0));
  if (!made) throw_python_error();
  made->call = call;
  return made;
}

PyObject *object_of(std::shared_ptr<const Runner> runner) {
  auto *object = allocated<RunnerObject>(&runner_type, call_runner);
  new (&object->runner) std::shared_ptr<const Runner>(std::move(runner));
  return reinterpret_cast<PyObject *>(object);
}

PyObject *new_plan(PyObject *, PyObject *args) {
  HANDLE_TH_ERRORS
  return object_of(std::make_shared<const Plan>(args));
  END_HANDLE_TH_ERRORS
}

PyObject *new_aten_call(PyObject *, PyObject *args) {
  HANDLE_TH_ERRORS
  const char *name;
  PyObject *rung, *strides;
  if (!PyArg_ParseTuple(args, "sOO!", &name, &rung, &PyTuple_Type, &strides)) return nullptr;
  const AtenFunction function = aten_function(name);
  if (!function) Py_RETURN_NONE;
  std::vector<std::vector<int64_t>> of_results;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(strides); i++)
    of_results.push_back(integers(PyTuple_GET_ITEM(strides, i)));
  return object_of(
      std::make_shared<const AtenCall>(function, Object::borrowed(rung), std::move(of_results)));
  END_HANDLE_TH_ERRORS
}

void runner_dealloc(PyObject *self) {
  std::destroy_at(&reinterpret_cast<RunnerObject *>(self)->runner);
  Py_TYPE(self)->tp_free(self);
}

PyObject *caller_new(PyTypeObject *type, PyObject *args, PyObject *) {
  HANDLE_TH_ERRORS
  const char *kinds;
  PyObject *bound, *run;
  if (!PyArg_ParseTuple(args, "sOO", &kinds, &bound, &run)) return nullptr;
  auto *made = allocated<Caller>(type, call_caller);
  new (&made->kinds) std::string(std::string(kinds) + 'v');
  new (&made->table) std::shared_ptr<Table>(std::make_shared<Table>());
  made->bound = Py_NewRef(bound);
  made->run = Py_NewRef(run);
  return reinterpret_cast<PyObject *>(made);
  END_HANDLE_TH_ERRORS
}

PyObject *caller_clear(PyObject *self, PyObject *) {
  reinterpret_cast<Caller *>(self)->table->clear();
  Py_RETURN_NONE;
}

PyObject *caller_plans(PyObject *self, PyObject *) {
  return PyLong_FromSize_t(reinterpret_cast<Caller *>(self)->table->plans());
}

std::vector<int> numbers(PyObject *tuple) {
  std::vector<int> found;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); i++)
    found.push_back(number('i', PyTuple_GET_ITEM(tuple, i)).i32);
  return found;
}

Scalar constant(PyObject *object) {
  auto value = scalar_of(object);
  TORCH_CHECK_TYPE(value, "a constant of a derivative must be a plain value");
  return std::move(*value);
}

// (caller, call, sources, gradients, matrix, columns)
Derivative::Call backward_call(PyObject *given) {
  Derivative::Call made;
  PyObject *caller, *sources, *gradients, *value;
  int columns;
  if (!PyArg_ParseTuple(given, "O!OO!O!ip", &caller_type, &caller, &made.call, &PyTuple_Type,
                        &sources, &PyTuple_Type, &gradients, &made.matrix, &columns))
    throw_python_error();
  made.columns = columns != 0;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(sources); i++) {
    int code, place, transposed;
    if (!PyArg_ParseTuple(PyTuple_GET_ITEM(sources, i), "CipO", &code, &place, &transposed, &value))
      throw_python_error();
    made.sources.push_back({(char)code, place, transposed != 0, constant(value)});
  }
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(gradients); i++) {
    int argument, result, transposed;
    if (!PyArg_ParseTuple(PyTuple_GET_ITEM(gradients, i), "iip", &argument, &result, &transposed))
      throw_python_error();
    made.gradients.push_back({argument, result, transposed != 0});
  }
  const auto *backward = reinterpret_cast<Caller *>(caller);
  made.kinds = backward->kinds;
  made.table = backward->table;
  made.run = Py_NewRef(caller);  // never released: nodes may outlive all callers
  Py_INCREF(made.call);
  return made;
}

// (name, calls, passed, fixed, when, alike, half)
std::shared_ptr<const Derivative> derivative(PyObject *given) {
  auto d = std::make_shared<Derivative>();
  const char *name;
  PyObject *calls, *passed, *fixed, *when;
  int alike, half;
  if (!PyArg_ParseTuple(given, "sO!O!O!O!pp", &name, &PyTuple_Type, &calls, &PyTuple_Type, &passed,
                        &PyTuple_Type, &fixed, &PyTuple_Type, &when, &alike, &half))
    throw_python_error();
  d->name = name;
  d->alike = alike != 0;
  d->half = half != 0;
  d->passed = numbers(passed);
  for (const int one : numbers(fixed)) d->fixed.push_back(one != 0);
  for (const int result : d->passed) d->has.push_back(result >= 0);
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(calls); i++) {
    d->calls.push_back(backward_call(PyTuple_GET_ITEM(calls, i)));
    for (const auto &g : d->calls.back().gradients) d->has[g.argument] = true;
  }
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(when); i++) {
    int place;
    PyObject *value;
    if (!PyArg_ParseTuple(PyTuple_GET_ITEM(when, i), "iO", &place, &value)) throw_python_error();
    d->when.emplace_back(place, constant(value));
  }
  return d;
}

PyObject *entry_new(PyTypeObject *type, PyObject *args, PyObject *) {
  HANDLE_TH_ERRORS
  PyObject *caller, *overrides, *forward_mode, *given;
  const char *name;
  if (!PyArg_ParseTuple(args, "O!sO!O!O!", &caller_type, &caller, &name, &PyDict_Type, &overrides,
                        &PyDict_Type, &forward_mode, &PyTuple_Type, &given))
    return nullptr;
  std::vector<std::shared_ptr<const Derivative>> derivatives;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(given); i++)
    derivatives.push_back(derivative(PyTuple_GET_ITEM(given, i)));
  auto *made = allocated<Entry>(type, call_entry);
  new (&made->name) std::string(name);
  new (&made->derivatives) std::vector<std::shared_ptr<const Derivative>>(std::move(derivatives));
  made->caller = reinterpret_cast<Caller *>(Py_NewRef(caller));
  made->overrides = Py_NewRef(overrides);
  made->forward_mode = Py_NewRef(forward_mode);
  return reinterpret_cast<PyObject *>(made);
  END_HANDLE_TH_ERRORS
}

PyMethodDef caller_methods[] = {
    {"clear", caller_clear, METH_NOARGS, "Forget what is bound to calls"},
    {"plans", caller_plans, METH_NOARGS, "How many plans are bound to calls"},
    {nullptr, nullptr, 0, nullptr},
};

PyTypeObject type_of(const char *name, size_t size, size_t call, newfunc make, destructor free) {
  PyTypeObject type = {PyVarObject_HEAD_INIT(nullptr, 0)};
  type.tp_name = name;
  type.tp_basicsize = (Py_ssize_t)size;
  type.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL;
  type.tp_vectorcall_offset = (Py_ssize_t)call;
  type.tp_call = PyVectorcall_Call;
  type.tp_new = make;
  type.tp_dealloc = free;
  return type;
}

PyTypeObject runner_type = type_of("kernelwright_calls.Runner", sizeof(RunnerObject),
                                   offsetof(RunnerObject, call), nullptr, runner_dealloc);
// Callers and entries live as long as their operators, until the process ends.
PyTypeObject caller_type = type_of("kernelwright_calls.Caller", sizeof(Caller),
                                   offsetof(Caller, call), caller_new, nullptr);
PyTypeObject entry_type =
    type_of("kernelwright_calls.Entry", sizeof(Entry), offsetof(Entry, call), entry_new, nullptr);

PyObject *set_launcher(PyObject *, PyObject *capsule) {
  launchers =
      static_cast<const LauncherInterface *>(PyCapsule_GetPointer(capsule, KW_LAUNCHER_INTERFACE));
  if (!launchers) return nullptr;
  Py_RETURN_NONE;
}

PyMethodDef methods[] = {
    {"plan", new_plan, METH_VARARGS, "A Runner that launches kernels (plan.h)"},
    {"aten_call", new_aten_call, METH_VARARGS,
     "A Runner that calls one of PyTorch's operators: (name, rung, strides of results); None if "
     "there is none of this name (aten_calls.h)"},
    {"set_launcher", set_launcher, METH_O, "The capsule `interface` of kernelwright_launcher"},
    {nullptr, nullptr, 0, nullptr},
};
PyModuleDef definition = {PyModuleDef_HEAD_INIT, "kernelwright_calls", nullptr, -1, methods};

}  // namespace
}  // namespace kw

PyMODINIT_FUNC PyInit_kernelwright_calls() {
  using namespace kw;
  caller_type.tp_methods = caller_methods;
  current_level = PyUnicode_InternFromString("_current_level");
  PyObject *module = current_level ? PyModule_Create(&definition) : nullptr;
  for (auto [name, type] : {std::pair{"Runner", &runner_type}, std::pair{"Caller", &caller_type},
                            std::pair{"Entry", &entry_type}})
    if (module && (PyType_Ready(type) < 0 ||
                   PyModule_AddObjectRef(module, name, reinterpret_cast<PyObject *>(type)) < 0))
      Py_CLEAR(module);
  return module;
}
