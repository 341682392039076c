// A bound plan in C++, which allocates results and workspace, and launches.
#pragma once
#define AT_PER_OPERATOR_HEADERS
#include <torch/csrc/autograd/python_variable.h>

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/Device.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/Exceptions.h>

#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "interface.h"
#ifdef KW_CUDA
#include <ATen/cuda/EmptyTensor.h>
#endif

namespace kw {

inline const LauncherInterface *launchers;

using Scalar =
    std::variant<std::monostate, bool, int64_t, double, std::string, std::vector<int64_t>>;

// An operator's argument: a tensor, or a value, which may be None.
struct Argument {
  const at::Tensor *tensor = nullptr;
  Scalar value;
};
using Arguments = c10::SmallVector<Argument, 8>;
using Tensors = c10::SmallVector<at::Tensor, 4>;

inline at::Tensor empty(at::IntArrayRef shape, at::IntArrayRef strides, at::ScalarType dtype,
                        at::Device device) {
#ifdef KW_CUDA
  if (device.is_cuda()) return at::detail::empty_strided_cuda(shape, strides, dtype, device);
#endif
  return at::detail::empty_strided_cpu(shape, strides, dtype);
}

// The handle of the current stream. On a CPU, where tests replace the driver, it is 0.
inline void *stream_of(at::Device device) {
  if (device.is_cpu()) return nullptr;
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device).native_handle();
}

// The interpreter's lock, held or released in a block.
struct Locked {
  PyGILState_STATE state = PyGILState_Ensure();
  ~Locked() { PyGILState_Release(state); }
};
struct Unlocked {
  PyThreadState *state = PyEval_SaveThread();
  ~Unlocked() { PyEval_RestoreThread(state); }
};

// An owned reference. The lock must be held where it is released.
struct Object {
  PyObject *it = nullptr;
  Object() = default;
  explicit Object(PyObject *owned) : it(owned) {}
  Object(Object &&other) noexcept : it(std::exchange(other.it, nullptr)) {}
  Object &operator=(Object &&other) noexcept {
    std::swap(it, other.it);
    return *this;
  }
  ~Object() { Py_XDECREF(it); }
  static Object borrowed(PyObject *object) { return Object(Py_XNewRef(object)); }
};

[[noreturn]] inline void throw_python_error() {
  python_error error;
  error.persist();
  throw error;
}

// Converts a call's value as launcher.c does, with the same errors.
inline Value number(char kind, PyObject *object) {
  Value value{};
  switch (kind) {
    case 'p':
      value.u64 = PyLong_AsUnsignedLongLong(object);
      break;
    case 'f':
      value.f32 = (float)PyFloat_AsDouble(object);
      break;
    case 'd':
      value.f64 = PyFloat_AsDouble(object);
      break;
    case 'b':
      value.bytes = PyBytes_AsString(object);
      break;
    default:
      value.i64 = PyLong_AsLongLong(object);
      if (kind == 'i' && value.i64 != (int32_t)value.i64 && !PyErr_Occurred())
        PyErr_Format(PyExc_OverflowError, "%lld does not fit an int32 kernel argument",
                     (long long)value.i64);
  }
  if (PyErr_Occurred()) throw_python_error();
  return value;
}

inline Value number(char kind, const Scalar &given) {
  Value value{};
  double real = 0;
  if (const auto *d = std::get_if<double>(&given)) {
    real = *d;
    TORCH_CHECK_TYPE(kind == 'f' || kind == 'd', "a kernel's integer is given a float");
  } else if (const auto *i = std::get_if<int64_t>(&given)) {
    real = (double)(value.i64 = *i);
  } else if (const auto *b = std::get_if<bool>(&given)) {
    real = (double)(value.i64 = *b);
  } else {
    TORCH_CHECK_TYPE(false, "a kernel's number must be a real number");
  }
  TORCH_CHECK_VALUE(kind != 'i' || value.i64 == (int32_t)value.i64, value.i64,
                    " does not fit an int32 kernel argument");
  if (kind == 'f') value.f32 = (float)real;
  if (kind == 'd') value.f64 = real;
  return value;
}

inline std::vector<int64_t> integers(PyObject *tuple) {
  std::vector<int64_t> found;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); i++)
    found.push_back(number('l', PyTuple_GET_ITEM(tuple, i)).i64);
  return found;
}

// What runs a call. The caller has released the interpreter's lock and disabled autograd.
class Runner {
 public:
  virtual Tensors run(at::ArrayRef<Argument> given) const = 0;
  virtual ~Runner() = default;
};

class Plan : public Runner {
 public:
  // Plan(device, kept, results, copies, workspace, zeroed, launches), of which
  //   kept: the objects to which the launches point
  //   results: (shape, strides, dtype) of each result
  //   copies: positions of the arguments that are made contiguous
  //   workspace: its size in bytes
  //   zeroed: a function of a stream that returns the address of the zeroed workspace, or None
  //   launches: (launcher, grid or None, sources). A source is (code, value) of a parameter that
  //     each call passes: a argument, r result, v argument's value, by position; w workspace,
  //     z zeroed workspace, by offset; n the number or bytes itself; m the map of a tensor, whose
  //     value is (code, value, name, layout)
  explicit Plan(PyObject *given) {
    PyObject *device, *kept, *results, *copies, *zeroed, *launches;
    Py_ssize_t bytes;
    if (!PyArg_ParseTuple(given,
                          "O!OO!O!n"
                          "OO!",
                          &THPDeviceType, &device, &kept, &PyTuple_Type, &results, &PyTuple_Type,
                          &copies, &bytes, &zeroed, &PyTuple_Type, &launches))
      throw_python_error();
    device_ = reinterpret_cast<THPDevice *>(device)->device;
    workspace_ = bytes;
    if (zeroed != Py_None) zeroed_ = Object::borrowed(zeroed);
    kept_ = Object(PyTuple_Pack(2, kept, launches));
    if (!kept_.it) throw_python_error();
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(results); i++)
      results_.push_back(result(PyTuple_GET_ITEM(results, i)));
    copies_ = integers(copies);
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(launches); i++)
      launches_.push_back(launch(PyTuple_GET_ITEM(launches, i)));
  }

  Tensors run(at::ArrayRef<Argument> given) const override {
    const c10::DeviceGuard guard(device_);
    Tensors copied, made;
    c10::SmallVector<const at::Tensor *, 8> tensors;
    for (const auto &a : given) tensors.push_back(a.tensor);
    copied.reserve(copies_.size());
    for (const auto i : copies_) {
      if (!tensors[i]) continue;
      copied.push_back(contiguous(*tensors[i]));
      tensors[i] = &copied.back();
    }
    for (const auto &r : results_) made.push_back(empty(r.shape, r.strides, r.dtype, device_));
    at::Tensor workspace;
    if (workspace_) workspace = empty({workspace_}, {1}, at::kByte, device_);
    const uint64_t start = workspace_ ? (uint64_t)workspace.mutable_data_ptr() : 0;
    void *stream = stream_of(device_);
    const uint64_t zeroed = zeroed_.it ? zeroed_for(stream) : 0;
    for (const auto &l : launches_) {
      c10::SmallVector<Value, 16> values;
      std::vector<EncodedMap> maps;  // which aligns them, unlike SmallVector
      maps.reserve(l.maps.size());
      for (const auto &s : l.sources) {
        Value value = s.value;
        switch (s.code) {
          case 'a':
            value.u64 = (uint64_t)tensors[s.place]->mutable_data_ptr();
            break;
          case 'r':
            value.u64 = (uint64_t)made[s.place].mutable_data_ptr();
            break;
          case 'w':
            value.u64 += start;
            break;
          case 'z':
            value.u64 += zeroed;
            break;
          case 'v':
            value = number(s.kind, given[s.place].value);
        }
        if (s.map >= 0) {
          maps.emplace_back();
          encode(l.launcher, l.maps[s.map], value.u64, maps.back().bytes);
          value.bytes = maps.back().bytes;
        }
        values.push_back(value);
      }
      const void *launcher = l.launcher;
      if (const int code = launchers->start(launcher, stream, l.grid, values.data()))
        refuse(launcher, code);
    }
    return made;
  }

  ~Plan() override {
    const Locked locked;
    zeroed_ = Object();
    kept_ = Object();
  }

 private:
  struct Result {
    std::vector<int64_t> shape, strides;
    at::ScalarType dtype;
  };
  struct Source {
    char code, kind;
    int place;
    Value value;
    int map;  // of the launch's maps, of the tensor with this source; -1 for none
  };
  struct Map {
    std::string name, layout;  // of the tensor; as tensor_maps.py packs it
  };
  struct EncodedMap {
    alignas(64) char bytes[KW_MAP_BYTES];
  };
  struct Step {
    PyObject *launcher;
    int32_t grid[3];
    std::vector<Source> sources;
    std::vector<Map> maps;
  };

  static Result result(PyObject *given) {
    PyObject *shape, *strides, *dtype;
    if (!PyArg_ParseTuple(given, "O!O!O!", &PyTuple_Type, &shape, &PyTuple_Type, &strides,
                          &THPDtypeType, &dtype))
      throw_python_error();
    return {integers(shape), integers(strides), reinterpret_cast<THPDtype *>(dtype)->scalar_type};
  }

  static Step launch(PyObject *given) {
    PyObject *grid, *sources;
    Step step{};
    if (!PyArg_ParseTuple(given, "OOO!", &step.launcher, &grid, &PyTuple_Type, &sources))
      throw_python_error();
    TORCH_CHECK_TYPE(launchers->is_launcher(step.launcher), "a launch needs a Launcher");
    const bool open = launchers->has_open_grid(step.launcher);
    TORCH_CHECK_TYPE(open ? PyTuple_Check(grid) && PyTuple_GET_SIZE(grid) == 3 : Py_IsNone(grid),
                     "an open grid has three numbers, a fixed one none");
    for (int i = 0; open && i < 3; i++) step.grid[i] = number('i', PyTuple_GET_ITEM(grid, i)).i32;
    const int count = (int)PyTuple_GET_SIZE(sources);
    TORCH_CHECK_TYPE(!launchers->kind(step.launcher, count) &&
                         (count == 0 || launchers->kind(step.launcher, count - 1)),
                     launchers->name(step.launcher), ": ", count,
                     " parameters are not its open ones");
    for (int i = 0; i < count; i++) {
      int code;
      PyObject *value;
      if (!PyArg_ParseTuple(PyTuple_GET_ITEM(sources, i), "CO", &code, &value))
        throw_python_error();
      const char kind = launchers->kind(step.launcher, i);
      int map = -1;
      if (code == 'm') {
        const char *name;
        PyObject *layout;
        if (!PyArg_ParseTuple(value, "COsS", &code, &value, &name, &layout)) throw_python_error();
        TORCH_CHECK_TYPE(kind == 'b' && PyBytes_GET_SIZE(layout) == KW_LAYOUT_BYTES, name,
                         ": no layout of a tensor map");
        map = (int)step.maps.size();
        step.maps.push_back({name, std::string(PyBytes_AS_STRING(layout), KW_LAYOUT_BYTES)});
      }
      step.sources.push_back(source((char)code, map < 0 ? kind : 'p', value, map));
    }
    return step;
  }

  static Source source(char code, char kind, PyObject *value, int map) {
    if (code == 'a' || code == 'r' || code == 'v')
      return {code, kind, number('i', value).i32, {}, map};
    return {code, kind, 0, number(code == 'n' ? kind : 'p', value), map};
  }

  static void encode(const void *launcher, const Map &map, uint64_t address, char *bytes) {
    const int code = launchers->encode(launcher, address, map.layout.data(), bytes);
    if (!code) return;
    const char *symbol, *text;
    launchers->describe(code, &symbol, &text);
    char where[20];
    snprintf(where, sizeof where, "%#llx", (unsigned long long)address);
    throw std::runtime_error("encoding a tensor map of " + map.name + " at " + where + ": " +
                             symbol + " (" + text + ")");
  }

  static at::Tensor contiguous(const at::Tensor &t) {
    const at::AutoDispatchBelowADInplaceOrView below;
    return t.contiguous();
  }

  uint64_t zeroed_for(void *stream) const {
    const Locked locked;
    const Object handle(PyLong_FromVoidPtr(stream));
    const Object start(handle.it ? PyObject_CallOneArg(zeroed_.it, handle.it) : nullptr);
    if (!start.it) throw_python_error();
    return number('p', start.it).u64;
  }

  [[noreturn]] static void refuse(const void *launcher, int code) {
    const char *symbol, *text;
    launchers->describe(code, &symbol, &text);
    std::string name;
    {
      const Locked locked;
      name = launchers->name(launcher);
    }
    throw std::runtime_error(name + ": " + symbol + " (" + text + ")");
  }

  at::Device device_ = at::kCPU;
  std::vector<Result> results_;
  std::vector<int64_t> copies_;
  int64_t workspace_ = 0;
  Object zeroed_, kept_;
  std::vector<Step> launches_;
};

}  // namespace kw
