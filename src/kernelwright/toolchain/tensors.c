// Reads the properties of a call's tensors through PyTorch's DLPack exchange table, in about 30 ns
// per tensor; the Python methods of a tensor take 400 ns. An optimizer's step reads five lists with
// one tensor per parameter, and for a small operator the launch costs little more than the lookup.
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

// DLPack 1.x, as its header lays it out.
typedef struct {
  void *data;
  int32_t device_type, device_id, ndim;
  uint8_t code, bits;
  uint16_t lanes;
  int64_t *shape, *strides;
  uint64_t byte_offset;
} Tensor;
typedef struct {
  uint32_t major, minor;
  void *older;
  void *allocate, *import_owned, *export_owned;
  int (*borrow)(void *object, Tensor *out);
  void *current_stream;
} Exchange;

static const Exchange *exchange;

static int borrow(PyObject *object, Tensor *t) {
  if (!exchange) {
    PyErr_SetString(PyExc_RuntimeError, "set_exchange has not been called");
    return -1;
  }
  return exchange->borrow(object, t);
}

static uint64_t address_of(const Tensor *t) {
  return (uint64_t)(uintptr_t)t->data + t->byte_offset;
}

static PyObject *set_exchange(PyObject *module, PyObject *capsule) {
  const Exchange *given = PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
  if (!given) return NULL;
  if (given->major != 1 || !given->borrow)
    return PyErr_Format(PyExc_RuntimeError, "PyTorch's DLPack exchange is version %u.%u",
                        given->major, given->minor);
  exchange = given;
  Py_RETURN_NONE;
}

static Py_ssize_t size_of(const Tensor *t) {
  return 24 + (t->ndim > 0 ? 2 * t->ndim * (Py_ssize_t)sizeof(int64_t) : 0);
}

// Six words of 32 bits and 2 ndim words of 64; ndim precedes the part that depends on it, so equal
// bytes of several consecutive tensors mean equal tensors.
static void write_header(const Tensor *t, char *out) {
  const int32_t facts[6] = {
      t->device_type, t->device_id, t->code << 8 | t->bits, t->lanes, (int32_t)(address_of(t) & 15),
      t->ndim};
  memcpy(out, facts, 24);
}

static void write_facts(const Tensor *t, char *out) {
  const Py_ssize_t dims = t->ndim * (Py_ssize_t)sizeof(int64_t);
  write_header(t, out);
  if (t->ndim > 0) {
    memcpy(out + 24, t->shape, dims);
    memcpy(out + 24 + dims, t->strides, dims);
  }
}

static PyObject *describe(PyObject *module, PyObject *list) {
  PyObject *items = PySequence_Fast(list, "a list of tensors is needed");
  if (!items) return NULL;
  const Py_ssize_t n = PySequence_Fast_GET_SIZE(items);
  Py_ssize_t room = n * 64 + 1024, used = 0;
  char *bytes = PyMem_Malloc(room);
  PyObject *made = bytes ? NULL : PyErr_NoMemory();
  for (Py_ssize_t k = 0; bytes && k < n; k++) {
    Tensor t;
    if (borrow(PySequence_Fast_GET_ITEM(items, k), &t) < 0) goto done;
    const Py_ssize_t size = size_of(&t);
    if (used + size > room) {
      char *more = PyMem_Realloc(bytes, room = 2 * room + size);
      if (!more) {
        PyErr_NoMemory();
        goto done;
      }
      bytes = more;
    }
    write_facts(&t, bytes + used);
    used += size;
  }
  if (bytes) made = PyBytes_FromStringAndSize(bytes, used);
done:
  PyMem_Free(bytes);
  Py_DECREF(items);
  return made;
}

// The addresses of lists of equal length as 64-bit words, one row per position.
static PyObject *addresses(PyObject *module, PyObject *lists) {
  if (!PyTuple_Check(lists) || PyTuple_GET_SIZE(lists) == 0) {
    PyErr_SetString(PyExc_TypeError, "a tuple of lists is needed");
    return NULL;
  }
  const Py_ssize_t columns = PyTuple_GET_SIZE(lists);
  const Py_ssize_t rows = PySequence_Size(PyTuple_GET_ITEM(lists, 0));
  PyObject *made = rows < 0 ? NULL : PyBytes_FromStringAndSize(NULL, rows * columns * 8);
  if (!made) return NULL;
  uint64_t *words = (uint64_t *)PyBytes_AS_STRING(made);
  for (Py_ssize_t c = 0; c < columns; c++) {
    PyObject *items = PySequence_Fast(PyTuple_GET_ITEM(lists, c), "a list of tensors is needed");
    int ok = items != NULL;
    if (ok && PySequence_Fast_GET_SIZE(items) != rows) {
      PyErr_SetString(PyExc_ValueError, "lists of several lengths");
      ok = 0;
    }
    for (Py_ssize_t k = 0; ok && k < rows; k++) {
      Tensor t;
      ok = borrow(PySequence_Fast_GET_ITEM(items, k), &t) >= 0;
      if (ok) words[k * columns + c] = address_of(&t);
    }
    Py_XDECREF(items);
    if (!ok) {
      Py_DECREF(made);
      return NULL;
    }
  }
  return made;
}

// finder(argument, ..., rung): looks up the function bound to calls like this one, and calls it
// with the arguments. For new calls, `bound` returns the function; if DLPack cannot describe a
// tensor, `run` executes the whole call.
enum { MAX_ARGUMENTS = 32, ROOM = 2048, MOST_KNOWN = 4096 };

// clang-format off
typedef struct {
  PyObject_HEAD
  vectorcallfunc call;
  PyObject *bound, *run, *known;  // known: key to function
  int count, values;              // arguments; of those, the ones that a key holds as they are
  char kinds[MAX_ARGUMENTS];      // t tensor, ? tensor or None, v value, - not in a key
} Finder;
// clang-format on

// The key: properties of all tensors, the values, the rung. NULL if a tensor cannot be described.
static PyObject *key_of(const Finder *f, PyObject *const *args) {
  char bytes[ROOM];
  Py_ssize_t used = 0, place = 1;
  PyObject *key = PyTuple_New(f->values + 2);
  if (!key) return NULL;
  for (int i = 0; i < f->count; i++) {
    const char kind = f->kinds[i];
    if (kind == 'v') {
      PyObject *value = PyList_Check(args[i]) ? PyList_AsTuple(args[i]) : Py_NewRef(args[i]);
      if (!value) goto fail;
      PyTuple_SET_ITEM(key, place++, value);
    } else if (kind != '-') {
      Tensor t = {.ndim = -1};
      if ((kind == 't' || args[i] != Py_None) && borrow(args[i], &t) < 0) goto fail;
      if (used + size_of(&t) > ROOM) goto fail;
      write_facts(&t, bytes + used);
      used += size_of(&t);
    }
  }
  PyObject *facts = PyBytes_FromStringAndSize(bytes, used);
  if (!facts) goto fail;
  PyTuple_SET_ITEM(key, 0, facts);
  PyTuple_SET_ITEM(key, place, Py_NewRef(args[f->count]));
  return key;
fail:
  Py_DECREF(key);
  PyErr_Clear();
  return NULL;
}

// Makes room for one more function by removing the oldest.
static int make_room(PyObject *known) {
  Py_ssize_t at = 0;
  PyObject *oldest;
  while (PyDict_GET_SIZE(known) >= MOST_KNOWN) {
    if (!PyDict_Next(known, &at, &oldest, NULL)) return -1;
    Py_INCREF(oldest);
    const int failed = PyDict_DelItem(known, oldest);
    Py_DECREF(oldest);
    if (failed) return -1;
    at = 0;
  }
  return 0;
}

static PyObject *find(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *keywords) {
  Finder *f = (Finder *)self;
  const Py_ssize_t given = PyVectorcall_NARGS(nargsf);
  if (given != f->count + 1 || keywords)
    return PyErr_Format(PyExc_TypeError, "%d arguments and a rung are needed, %zd given", f->count,
                        given);
  PyObject *key = key_of(f, args);
  if (!key) return PyObject_Vectorcall(f->run, args, given, NULL);
  PyObject *found = PyDict_GetItemWithError(f->known, key);
  if (found) {
    Py_INCREF(found);
  } else if (!PyErr_Occurred()) {
    found = PyObject_Vectorcall(f->bound, args, given, NULL);
    if (found && (make_room(f->known) < 0 || PyDict_SetItem(f->known, key, found) < 0))
      Py_CLEAR(found);
  }
  Py_DECREF(key);
  if (!found) return NULL;
  PyObject *result = PyObject_Vectorcall(found, args, given - 1, NULL);
  Py_DECREF(found);
  return result;
}

static PyObject *finder_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
  static char *names[] = {"kinds", "bound", "run", NULL};
  const char *kinds;
  PyObject *bound, *run;
  if (!PyArg_ParseTupleAndKeywords(args, keywords, "sOO", names, &kinds, &bound, &run)) return NULL;
  const size_t count = strlen(kinds);
  if (count > MAX_ARGUMENTS || strspn(kinds, "t?v-") != count)
    return PyErr_Format(PyExc_ValueError, "kinds: %s", kinds);
  Finder *f = (Finder *)type->tp_alloc(type, 0);
  if (!f) return NULL;
  f->call = find;
  f->bound = Py_NewRef(bound);
  f->run = Py_NewRef(run);
  f->known = PyDict_New();
  f->count = (int)count;
  for (size_t i = 0; i < count; i++) f->values += (f->kinds[i] = kinds[i]) == 'v';
  if (!f->known) Py_CLEAR(f);
  return (PyObject *)f;
}

static int finder_traverse(PyObject *self, visitproc visit, void *arg) {
  Finder *f = (Finder *)self;
  Py_VISIT(f->bound);
  Py_VISIT(f->run);
  Py_VISIT(f->known);
  return 0;
}

static int finder_clear(PyObject *self) {
  Finder *f = (Finder *)self;
  Py_CLEAR(f->bound);
  Py_CLEAR(f->run);
  Py_CLEAR(f->known);
  return 0;
}

static void finder_dealloc(PyObject *self) {
  PyObject_GC_UnTrack(self);
  finder_clear(self);
  Py_TYPE(self)->tp_free(self);
}

static PyTypeObject finder_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "kernelwright_tensors.Finder",
    .tp_doc =
        "Finder(kinds, bound, run)\n\n"
        "kinds: of the arguments: t a tensor, ? a tensor or None, v a value that a key holds, - "
        "one\n"
        "that it does not. bound(*arguments, rung) is the function for calls like this one;\n"
        "run(*arguments, rung) does the same as the finder, for any tensors.",
    .tp_basicsize = sizeof(Finder),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_HAVE_GC,
    .tp_vectorcall_offset = offsetof(Finder, call),
    .tp_call = PyVectorcall_Call,
    .tp_new = finder_new,
    .tp_traverse = finder_traverse,
    .tp_clear = finder_clear,
    .tp_dealloc = finder_dealloc,
};

// A call's pattern, as dispatch/dynamic_shapes.py defines it (`_pattern`).
enum { MOST_CODES = 64, PRODUCT = -1 };

// The sizes of a call's open dimensions; the i-th has the code -2 - i.
typedef struct {
  int64_t sizes[MOST_CODES];
  int count, full;
} Codes;

// 0 if the size has none.
static int64_t code_of(const Codes *codes, int64_t size) {
  for (int i = 0; i < codes->count; i++)
    if (codes->sizes[i] == size) return -2 - i;
  return 0;
}

static void add_code(Codes *codes, int64_t size) {
  if (size <= 1 || code_of(codes, size)) return;
  if (codes->count == MOST_CODES)
    codes->full = 1;
  else
    codes->sizes[codes->count++] = size;
}

// DLPack's codes of floating-point types: float, bfloat, and from 7 on those of 8 bits and fewer.
static int is_floating(const Tensor *t) { return t->code == 2 || t->code == 4 || t->code >= 7; }

static int columns_of(const Tensor *t, int by_strides) {
  const int last = t->ndim - 1;
  const int by_columns =
      by_strides && last > 0 && t->strides[last] != 1 && t->strides[last - 1] == 1;
  return by_columns ? last - 1 : last;
}

static int is_contiguous(const Tensor *t) {
  int64_t expected = 1;
  int dense = 1;
  for (int i = t->ndim - 1; i >= 0; i--) {
    if (t->shape[i] == 0) return 1;
    if (t->shape[i] != 1 && t->strides[i] != expected) dense = 0;
    expected *= t->shape[i];
  }
  return dense;
}

static int64_t extent_of(const Tensor *t, int axis) {
  const int64_t stride = t->strides[axis];
  for (int k = 1; k < t->ndim && stride > 1; k++) {
    const int i = (axis + k) % t->ndim;
    if (t->shape[i] * t->strides[i] == stride) return -1 - i;
  }
  return stride;
}

static Codes codes_of(const Tensor *tensors, int count, int by_strides) {
  Codes codes = {.count = 0};
  for (int k = 0; k < count; k++) {
    const Tensor *t = &tensors[k];
    const int closed = is_floating(t) ? columns_of(t, by_strides) : -1;
    for (int i = 0; i < t->ndim; i++)
      if (i != closed) add_code(&codes, t->shape[i]);
  }
  for (int k = 0, none = codes.count == 0; none && k < count; k++)
    if (tensors[k].ndim > 0) add_code(&codes, tensors[k].shape[0]);
  return codes;
}

// Writes a tensor's part of a pattern; returns its size. `rows` is 0 if no dimension is a product.
static Py_ssize_t write_part(const Tensor *t, const Codes *codes, int64_t rows, int closed,
                             char *out) {
  write_header(t, out);
  int64_t *words = (int64_t *)(out + 24);
  for (int i = 0; i < t->ndim; i++) {
    int64_t word = t->shape[i];
    if (i != closed && word > 1) {
      const int64_t code = code_of(codes, word);
      word = code ? code : word == rows ? PRODUCT : word;
    }
    *words++ = word;
  }
  const int contiguous = is_contiguous(t);
  *words++ = contiguous;
  for (int i = 0; i < t->ndim && !contiguous; i++) *words++ = extent_of(t, i);
  return (char *)words - out;
}

static PyObject *integers(const int64_t *numbers, int count) {
  PyObject *made = PyTuple_New(count);
  for (int i = 0; made && i < count; i++) {
    PyObject *one = PyLong_FromLongLong(numbers[i]);
    if (one)
      PyTuple_SET_ITEM(made, i, one);
    else
      Py_CLEAR(made);
  }
  return made;
}

// (bytes of the tensors, each value in a key ...); NULL without an exception if they do not fit.
static PyObject *pattern_key(const char *kinds, PyObject *arguments, const Tensor *tensors,
                             const Codes *codes, int most, int by_strides) {
  _Alignas(8) char bytes[ROOM];
  PyObject *values[MAX_ARGUMENTS];
  Py_ssize_t used = 0, count = 0;
  int64_t rows = 1;  // the length of a tensor of targets, one for each row
  for (int i = 0; i < tensors->ndim - 1; i++) rows *= tensors->shape[i];
  for (Py_ssize_t i = 0; kinds[i]; i++) {
    if (kinds[i] == 'v') values[count++] = PyTuple_GET_ITEM(arguments, i);
    if (kinds[i] != 't' && kinds[i] != '?') continue;
    const Tensor *t = tensors++;
    if (used + 8 + size_of(t) > ROOM) return NULL;
    if (t->ndim < 0) {
      write_header(t, bytes + used);
      used += 24;
      continue;
    }
    const int closed =
        t->ndim > 1 && t->ndim == most && is_floating(t) ? columns_of(t, by_strides) : -1;
    used += write_part(t, codes, rows > 1 ? rows : 0, closed, bytes + used);
  }
  PyObject *key = PyTuple_New(count + 1);
  PyObject *first = key ? PyBytes_FromStringAndSize(bytes, used) : NULL;
  if (!first) goto fail;
  PyTuple_SET_ITEM(key, 0, first);
  for (Py_ssize_t i = 0; i < count; i++) {
    PyObject *value = PyList_Check(values[i]) ? PyList_AsTuple(values[i]) : Py_NewRef(values[i]);
    if (!value) goto fail;
    PyTuple_SET_ITEM(key, i + 1, value);
  }
  return key;
fail:
  Py_XDECREF(key);
  return NULL;
}

static PyObject *pattern(PyObject *module, PyObject *args) {
  const char *kinds;
  int by_strides, count = 0, most = 0;
  PyObject *arguments;
  if (!PyArg_ParseTuple(args, "spO!", &kinds, &by_strides, &PyTuple_Type, &arguments)) return NULL;
  const Py_ssize_t given = PyTuple_GET_SIZE(arguments);
  if (given != (Py_ssize_t)strlen(kinds) || given > MAX_ARGUMENTS)
    return PyErr_Format(PyExc_TypeError, "%zd arguments for the kinds %s", given, kinds);
  Tensor tensors[MAX_ARGUMENTS], present[MAX_ARGUMENTS];
  int all = 0;
  for (Py_ssize_t i = 0; i < given; i++) {
    if (kinds[i] != 't' && kinds[i] != '?') continue;
    PyObject *a = PyTuple_GET_ITEM(arguments, i);
    Tensor *t = &tensors[all++];
    *t = (Tensor){.ndim = -1};
    if (kinds[i] == '?' && a == Py_None) continue;
    if (borrow(a, t) < 0) {
      PyErr_Clear();
      Py_RETURN_NONE;
    }
    if (t->ndim > most) most = t->ndim;
    present[count++] = *t;
  }
  const Codes codes = codes_of(present, count, by_strides);
  if (codes.full || !all || tensors[0].ndim < 0) Py_RETURN_NONE;
  PyObject *key = pattern_key(kinds, arguments, tensors, &codes, most, by_strides);
  if (!key && PyErr_Occurred()) return NULL;
  if (!key) Py_RETURN_NONE;
  PyObject *sizes = integers(codes.sizes, codes.count);
  PyObject *both = sizes ? PyTuple_Pack(2, key, sizes) : NULL;
  Py_DECREF(key);
  Py_XDECREF(sizes);
  return both;
}

static PyMethodDef methods[] = {
    {"set_exchange", set_exchange, METH_O, "torch.Tensor.__dlpack_c_exchange_api__"},
    {"describe", describe, METH_O,
     "Device, dtype, shape, strides and alignment of every tensor of a list, as bytes"},
    {"addresses", addresses, METH_O,
     "Addresses of the tensors of lists of one length, a row of words for each place, as bytes"},
    {"pattern", pattern, METH_VARARGS,
     "pattern(kinds, by_strides, arguments): (a call without its open sizes, those sizes), or None "
     "if DLPack cannot describe a tensor or the call is too large"},
    {NULL, NULL, 0, NULL},
};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "kernelwright_tensors", NULL, -1,
                                        methods};

PyMODINIT_FUNC PyInit_kernelwright_tensors(void) {
  if (PyType_Ready(&finder_type) < 0) return NULL;
  PyObject *module = PyModule_Create(&definition);
  if (module && PyModule_AddObjectRef(module, "Finder", (PyObject *)&finder_type) < 0)
    Py_CLEAR(module);
  return module;
}
