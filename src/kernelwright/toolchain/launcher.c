// The host side of one kernel launch: a callable that holds everything of a launch that does not
// change (function, grid, block, shared memory, fixed arguments) and takes the rest:
//
//     launcher(stream, argument, argument, ...)
//
// or, if the grid is open, launcher(stream, x, y, z, argument, ...).
//
// Pointers and integers are passed as Python ints, floats as Python floats, structs as bytes of
// their size. The driver's functions are given by address (`set_driver`), so this file needs no
// CUDA header, and tests can replace the driver.
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "cpp_extension/interface.h"

// The driver's launch structures, as cuda.h lays them out (CUDA 12 and 13).
typedef int Result;
typedef struct {
  int id;
  char pad[4];
  union {
    char bytes[64];
    struct {
      unsigned x, y, z;
    } cluster;
    int policy, allowed;
  } value;
} Attribute;
typedef struct {
  unsigned grid[3], block[3], shared;
  void *stream;
  Attribute *attributes;
  unsigned count;
} Config;
_Static_assert(sizeof(Attribute) == 72, "CUlaunchAttribute");
_Static_assert(offsetof(Config, stream) == 32 && sizeof(Config) == 56, "CUlaunchConfig");
enum {
  CLUSTER_DIMENSION = 4,
  CLUSTER_SCHEDULING_POLICY = 5,
  POLICY_SPREAD = 1,
  PROGRAMMATIC_STREAM_SERIALIZATION = 6
};

static struct {
  Result (*launch)(const Config *, void *function, void **parameters, void **extra);
  Result (*get_context)(void **);
  Result (*push_context)(void *);
  Result (*pop_context)(void **);
  Result (*error_name)(Result, const char **);
  Result (*error_string)(Result, const char **);
  Result (*capture_info)(void *stream, int *status, uint64_t *id, void *graph, void *dependencies,
                         void *count);
  Result (*encode)(void *map, int dtype, unsigned rank, void *address, const uint64_t *shape,
                   const uint64_t *strides, const unsigned *box, const unsigned *steps,
                   int interleave, int swizzle, int promotion, int fill);
} driver;

enum { MAX_PARAMETERS = 256 };

// clang-format off
typedef struct {
  PyObject_HEAD
  vectorcallfunc call;
  PyObject *name;
  void *function, *context;
  Config config;
  Attribute attributes[3];
  int count, open;                // all parameters; those passed by each call
  int grid;                       // how many of the call's arguments are the grid: 3 if it is open
  char kinds[MAX_PARAMETERS];     // p, i, l, f, d, b
  short slots[MAX_PARAMETERS];    // parameter that the n-th argument of a call fills
  Value values[MAX_PARAMETERS];   // fixed ones are filled in; for structs, the size
} Launcher;
// clang-format on

static void describe(Result code, const char **symbol, const char **text) {
  *symbol = *text = NULL;
  driver.error_name(code, symbol);
  driver.error_string(code, text);
  if (!*symbol) *symbol = "unknown error";
  if (!*text) *text = "no description";
}

static PyObject *driver_error(Result code, PyObject *name) {
  const char *symbol, *text;
  describe(code, &symbol, &text);
  return PyErr_Format(PyExc_RuntimeError, "%U: %s (%s)", name, symbol, text);
}

// Returns -1 with an exception set if `object` is not a number of this kind.
static int fill(Value *value, char kind, PyObject *object) {
  switch (kind) {
    case 'p':
      value->u64 = PyLong_AsUnsignedLongLong(object);
      break;
    case 'l':
      value->i64 = PyLong_AsLongLong(object);
      break;
    case 'i': {
      long long wide = PyLong_AsLongLong(object);
      if (wide != (int32_t)wide && !PyErr_Occurred())
        PyErr_Format(PyExc_OverflowError, "%lld does not fit an int32 kernel argument", wide);
      value->i32 = (int32_t)wide;
      break;
    }
    case 'f':
      value->f32 = (float)PyFloat_AsDouble(object);
      break;
    case 'd':
      value->f64 = PyFloat_AsDouble(object);
      break;
    case 'b':  // the caller holds the object until the launch has copied it
      if (!PyBytes_Check(object) || PyBytes_GET_SIZE(object) != value->i64)
        PyErr_Format(PyExc_TypeError, "bytes of size %lld are needed", (long long)value->i64);
      else
        value->bytes = PyBytes_AS_STRING(object);
      break;
    default:
      PyErr_Format(PyExc_ValueError, "unknown parameter kind '%c'", kind);
  }
  return PyErr_Occurred() ? -1 : 0;
}

// Makes a context the thread's current one, if it is not; `foreign` says whether `leave` must undo
// it. A new thread, or one that works on another device, has another context or none.
static Result enter(void *context, int *foreign) {
  void *current = NULL;
  Result code = driver.get_context(&current);
  *foreign = code == 0 && current != context;
  if (*foreign) code = driver.push_context(context);
  return code;
}

static Result leave(int foreign, Result code) {
  void *current;
  const Result popped = foreign ? driver.pop_context(&current) : 0;
  return code ? code : popped;
}

// A tensor map without its address, as packed by tensor_maps.py.
typedef struct {
  uint64_t shape[5], strides[5];
  unsigned box[5], steps[5];
  int dtype, swizzle;
  unsigned rank, unused;
} Layout;
_Static_assert(sizeof(Layout) == KW_LAYOUT_BYTES, "Layout");
enum { NO_INTERLEAVE = 0, PROMOTE_TO_256_BYTES = 3, ZEROS_OUTSIDE = 0 };

static Result write_map(void *context, uint64_t address, const void *layout, void *map) {
  Layout l;
  memcpy(&l, layout, sizeof l);
  int foreign;
  Result code = enter(context, &foreign);
  if (code) return code;
  code = driver.encode(map, l.dtype, l.rank, (void *)(uintptr_t)address, l.shape, l.strides, l.box,
                       l.steps, NO_INTERLEAVE, l.swizzle, PROMOTE_TO_256_BYTES, ZEROS_OUTSIDE);
  return leave(foreign, code);
}

// Does not need the interpreter. Other threads may start the same launcher at the same time.
static Result start(const void *launcher, void *stream, const int32_t *grid, const Value *open) {
  const Launcher *l = launcher;
  const void *parameters[MAX_PARAMETERS];
  Config config = l->config;
  config.attributes = (Attribute *)l->attributes;
  config.stream = stream;
  for (int i = 0; i < l->grid; i++) config.grid[i] = (unsigned)grid[i];
  for (int i = 0; i < l->count; i++) parameters[i] = &l->values[i];
  for (int i = 0; i < l->open; i++) {
    const int at = l->slots[i];
    parameters[at] = l->kinds[at] == 'b' ? (const void *)open[i].bytes : &open[i];
  }
  int foreign;
  const Result code = enter(l->context, &foreign);
  if (code) return code;
  return leave(foreign, driver.launch(&config, l->function, (void **)parameters, NULL));
}

static PyObject *launch(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *keywords) {
  Launcher *l = (Launcher *)self;
  Py_ssize_t given = PyVectorcall_NARGS(nargsf);
  if (given != l->open + l->grid + 1 || keywords)
    return PyErr_Format(PyExc_TypeError, "%U: a stream and %d arguments are needed, %zd given",
                        l->name, l->open + l->grid, given - 1);
  Value values[MAX_PARAMETERS], blocks[3] = {{0}};
  void *stream = (void *)(uintptr_t)PyLong_AsUnsignedLongLong(args[0]);
  if (stream == (void *)(uintptr_t)-1 && PyErr_Occurred()) return NULL;
  for (int i = 0; i < l->grid; i++)
    if (fill(&blocks[i], 'i', args[i + 1]) < 0) return NULL;
  for (int i = 0; i < l->open; i++) {
    values[i] = l->values[l->slots[i]];
    if (fill(&values[i], l->kinds[l->slots[i]], args[l->grid + i + 1]) < 0) return NULL;
  }
  const int32_t grid[3] = {blocks[0].i32, blocks[1].i32, blocks[2].i32};
  Result code;
  Py_BEGIN_ALLOW_THREADS;
  code = start(l, stream, grid, values);
  Py_END_ALLOW_THREADS;
  if (code) return driver_error(code, l->name);
  Py_RETURN_NONE;
}

static PyObject *launcher_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
  static char *names[] = {"name",    "function", "context",    "grid", "block", "shared",
                          "cluster", "overlaps", "parameters", "open", NULL};
  PyObject *name, *parameters;
  unsigned long long function, context;
  Config c = {0};
  unsigned cluster;
  int overlaps, open = 0;
  if (!PyArg_ParseTupleAndKeywords(args, keywords, "UKK(III)(III)IIpO!|p", names, &name, &function,
                                   &context, &c.grid[0], &c.grid[1], &c.grid[2], &c.block[0],
                                   &c.block[1], &c.block[2], &c.shared, &cluster, &overlaps,
                                   &PyTuple_Type, &parameters, &open))
    return NULL;
  if (!driver.launch) {
    PyErr_SetString(PyExc_RuntimeError, "set_driver has not been called");
    return NULL;
  }
  if (PyTuple_GET_SIZE(parameters) > MAX_PARAMETERS)
    return PyErr_Format(PyExc_ValueError, "%U: %zd parameters, at most %d are possible", name,
                        PyTuple_GET_SIZE(parameters), MAX_PARAMETERS);
  Launcher *l = (Launcher *)type->tp_alloc(type, 0);
  if (!l) return NULL;
  l->call = launch;
  l->name = Py_NewRef(name);
  l->function = (void *)(uintptr_t)function;
  l->context = (void *)(uintptr_t)context;
  if (cluster > 1) {
    l->attributes[0].id = CLUSTER_DIMENSION;
    l->attributes[0].value.cluster.x = cluster;
    l->attributes[0].value.cluster.y = l->attributes[0].value.cluster.z = 1;
    l->attributes[1].id = CLUSTER_SCHEDULING_POLICY;
    l->attributes[1].value.policy = POLICY_SPREAD;
    c.count = 2;
  }
  if (overlaps) {
    l->attributes[c.count].id = PROGRAMMATIC_STREAM_SERIALIZATION;
    l->attributes[c.count++].value.allowed = 1;
  }
  l->config = c;
  l->grid = open ? 3 : 0;
  l->count = (int)PyTuple_GET_SIZE(parameters);
  for (int i = 0; i < l->count; i++) {
    int kind;
    PyObject *value;
    if (!PyArg_ParseTuple(PyTuple_GET_ITEM(parameters, i), "CO", &kind, &value)) goto fail;
    l->kinds[i] = (char)kind;
    if (kind == 'b' && fill(&l->values[i], 'l', value) < 0) goto fail;
    if (value == Py_None || kind == 'b')
      l->slots[l->open++] = (short)i;
    else if (fill(&l->values[i], l->kinds[i], value) < 0)
      goto fail;
  }
  return (PyObject *)l;
fail:
  Py_DECREF(l);
  return NULL;
}

static void launcher_dealloc(PyObject *self) {
  Py_XDECREF(((Launcher *)self)->name);
  Py_TYPE(self)->tp_free(self);
}

static PyObject *launcher_repr(PyObject *self) {
  Launcher *l = (Launcher *)self;
  return PyUnicode_FromFormat("<launcher of %U, grid (%u, %u, %u), block (%u, %u, %u)>", l->name,
                              l->config.grid[0], l->config.grid[1], l->config.grid[2],
                              l->config.block[0], l->config.block[1], l->config.block[2]);
}

static PyTypeObject launcher_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "kernelwright_launcher.Launcher",
    .tp_doc =
        "Launcher(name, function, context, grid, block, shared, cluster, overlaps, parameters,\n"
        "open=False)\n\n"
        "overlaps: it may start while the launch before it ends.\n"
        "parameters: (kind, value) of each kernel parameter; kind is p, i, l, f or d,\n"
        "value a number, or None for one that each call gives; or b, a struct that each\n"
        "call gives, and its size.\n"
        "open: each call gives the grid, three numbers after the stream.",
    .tp_basicsize = sizeof(Launcher),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_vectorcall_offset = offsetof(Launcher, call),
    .tp_call = PyVectorcall_Call,
    .tp_new = launcher_new,
    .tp_dealloc = launcher_dealloc,
    .tp_repr = launcher_repr,
};

static char kind(const void *launcher, int n) {
  const Launcher *l = launcher;
  return n < l->open ? l->kinds[l->slots[n]] : 0;
}

static int has_open_grid(const void *launcher) { return ((const Launcher *)launcher)->grid != 0; }

static int is_launcher(const void *object) {
  return Py_IS_TYPE((PyObject *)object, &launcher_type);
}

static const char *name_of(const void *launcher) {
  return PyUnicode_AsUTF8(((const Launcher *)launcher)->name);
}

static Result encode_for(const void *launcher, uint64_t address, const void *layout, void *map) {
  return write_map(((const Launcher *)launcher)->context, address, layout, map);
}

static const LauncherInterface interface = {start,   kind,     has_open_grid, is_launcher,
                                            name_of, describe, encode_for};

// The bytes of a map, or the driver's error code.
static PyObject *encode(PyObject *module, PyObject *args) {
  unsigned long long context, address;
  Py_buffer layout;
  if (!PyArg_ParseTuple(args, "KKy*", &context, &address, &layout)) return NULL;
  _Alignas(64) char map[KW_MAP_BYTES];
  const int fits = layout.len == KW_LAYOUT_BYTES;
  const Result code = fits ? write_map((void *)(uintptr_t)context, address, layout.buf, map) : 0;
  PyBuffer_Release(&layout);
  if (!fits) return PyErr_Format(PyExc_TypeError, "a layout has %d bytes", KW_LAYOUT_BYTES);
  return code ? PyLong_FromLong(code) : PyBytes_FromStringAndSize(map, sizeof map);
}

static PyObject *set_driver(PyObject *module, PyObject *args) {
  unsigned long long a[8];
  if (!PyArg_ParseTuple(args, "KKKKKKKK", &a[0], &a[1], &a[2], &a[3], &a[4], &a[5], &a[6], &a[7]))
    return NULL;
  memcpy(&driver.launch, &a[0], sizeof(void *));
  memcpy(&driver.get_context, &a[1], sizeof(void *));
  memcpy(&driver.push_context, &a[2], sizeof(void *));
  memcpy(&driver.pop_context, &a[3], sizeof(void *));
  memcpy(&driver.error_name, &a[4], sizeof(void *));
  memcpy(&driver.error_string, &a[5], sizeof(void *));
  memcpy(&driver.capture_info, &a[6], sizeof(void *));
  memcpy(&driver.encode, &a[7], sizeof(void *));
  Py_RETURN_NONE;
}

// The legacy default stream (0) cannot be captured, and must not be queried during a capture.
static PyObject *capture_id(PyObject *module, PyObject *stream) {
  uint64_t id = 0;
  int status = 0;
  void *handle = (void *)(uintptr_t)PyLong_AsUnsignedLongLong(stream);
  if (PyErr_Occurred()) return NULL;
  if (handle) {
    Result code = driver.capture_info(handle, &status, &id, NULL, NULL, NULL);
    if (code) {
      PyObject *name = PyUnicode_FromString("cuStreamGetCaptureInfo");
      if (name) {
        driver_error(code, name);
        Py_DECREF(name);
      }
      return NULL;
    }
  }
  return PyLong_FromUnsignedLongLong(status ? id : 0);
}

static PyMethodDef methods[] = {
    {"set_driver", set_driver, METH_VARARGS,
     "set_driver(launch, get_context, push_context, pop_context, error_name, error_string, "
     "capture_info, encode): addresses of the driver's functions"},
    {"encode", encode, METH_VARARGS,
     "encode(context, address, layout): the bytes of a tensor map, or the driver's error code"},
    {"capture_id", capture_id, METH_O, "The id of the graph a stream is captured into, or 0"},
    {NULL, NULL, 0, NULL},
};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "kernelwright_launcher", NULL, -1,
                                        methods};

PyMODINIT_FUNC PyInit_kernelwright_launcher(void) {
  if (PyType_Ready(&launcher_type) < 0) return NULL;
  PyObject *module = PyModule_Create(&definition);
  if (module && PyModule_AddObjectRef(module, "Launcher", (PyObject *)&launcher_type) < 0)
    Py_CLEAR(module);
  PyObject *capsule =
      module ? PyCapsule_New((void *)&interface, KW_LAUNCHER_INTERFACE, NULL) : NULL;
  if (module && (!capsule || PyModule_AddObjectRef(module, "interface", capsule) < 0))
    Py_CLEAR(module);
  Py_XDECREF(capsule);
  return module;
}
