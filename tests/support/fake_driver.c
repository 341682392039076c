// A driver that remembers what it was asked for, and refuses what an H200's driver refuses. Its
// kernels take parameters of 8, 8, 8 and 4 bytes.
#include <stdint.h>
#include <stdio.h>
#include <string.h>
typedef struct {
  int id;
  char pad[4];
  int value[16];
} Attribute;
typedef struct {
  unsigned grid[3], block[3], shared;
  void *stream;
  Attribute *attributes;
  unsigned count;
} Config;
static __thread void *stack[8];
static __thread int depth;
static int failure;
enum { OK = 0, INVALID_VALUE = 1, INVALID_IMAGE = 200, INVALID_HANDLE = 400 };
enum { WITHOUT_OPT_IN = 48 << 10, MOST_SHARED = 227 << 10, PORTABLE_CLUSTER = 8, CLUSTER = 16 };
enum { CLUSTER_DIMENSION = 4 };  // of an Attribute
// What cuModuleGetFunction returns. Handles of other functions have no limits of their own.
typedef struct {
  int dynamic, cluster;  // allowed by cuFuncSetAttribute
} Function;
static Function functions[1 << 14];
static int known;
int static_shared = 1024;  // of every function
static Function *function(const void *f) {
  const Function *p = f;
  return p >= functions && p < functions + known ? (Function *)p : 0;
}
Config last;
Attribute attributes[3];
void *last_function, *last_context;
uint64_t words[16];
int quiet;  // do nothing but return
int pushes, pops, launches, loads, allowed_shared, allowed_cluster;
uint64_t capture;
void fail_next(int code) { failure = code; }
void set_context(void *c) {
  depth = 1;
  stack[0] = c;
}
int cuInit(unsigned f) { return 0; }
int cuDriverGetVersion(int *v) {
  *v = 13000;
  return 0;
}
int cuDeviceGet(int *d, int i) {
  *d = i;
  return 0;
}
int cuDevicePrimaryCtxRetain(void **c, int d) {
  *c = (void *)(uintptr_t)(0xC0 + d);
  return 0;
}
int cuCtxGetCurrent(void **c) {
  *c = depth ? stack[depth - 1] : 0;
  return 0;
}
int cuCtxPushCurrent_v2(void *c) {
  stack[depth++] = c;
  pushes++;
  return 0;
}
int cuCtxPopCurrent_v2(void **c) {
  *c = stack[--depth];
  pops++;
  return 0;
}
int cuModuleLoadData(void **m, const char *image) {
  loads++;
  *m = (void *)0x30;
  return memcmp(image,
                "\x7f"
                "ELF",
                4)
             ? INVALID_IMAGE
             : OK;
}
int cuModuleGetFunction(void **f, void *m, const char *name) {
  functions[known].cluster = PORTABLE_CLUSTER;
  functions[known].dynamic = WITHOUT_OPT_IN - static_shared;
  *f = &functions[known++];
  return OK;
}
int cuFuncGetAttribute(int *v, int a, void *f) {
  *v = static_shared;
  return function(f) ? OK : INVALID_HANDLE;
}
int cuFuncSetAttribute(void *f, int a, int v) {
  if (!function(f)) return INVALID_HANDLE;
  if (a == 8) {
    if (v < 0 || v > MOST_SHARED - static_shared) return INVALID_VALUE;
    allowed_shared = function(f)->dynamic = v;
  }
  if (a == 14) {
    allowed_cluster = v;
    function(f)->cluster = v ? CLUSTER : PORTABLE_CLUSTER;
  }
  return OK;
}
int cuGetErrorName(int e, const char **s) {
  *s = e == 1 ? "CUDA_ERROR_INVALID_VALUE" : "CUDA_ERROR_INVALID_IMAGE";
  return 0;
}
int cuGetErrorString(int e, const char **s) {
  *s = "invalid argument";
  return 0;
}
int cuStreamGetCaptureInfo_v2(void *s, int *status, uint64_t *id, void *g, void *d, void *n) {
  *status = capture != 0;
  *id = capture;
  return 0;
}
// The rules of cuTensorMapEncodeTiled for tiles without interleaving.
static int is_map(int type, unsigned rank, const void *address, const uint64_t *shape,
                  const uint64_t *strides, const unsigned *box, const unsigned *steps,
                  int swizzle) {
  static const int bytes[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2};
  if (type < 0 || type > 9 || rank < 1 || rank > 5 || (uintptr_t)address % 16) return 0;
  for (unsigned i = 0; i < rank; i++) {
    if (shape[i] < 1 || shape[i] > 1ull << 32 || box[i] < 1 || box[i] > 256) return 0;
    if (steps[i] < 1 || steps[i] > 8) return 0;
    if (i && (strides[i - 1] % 16 || strides[i - 1] >= 1ull << 40)) return 0;
  }
  const unsigned row = box[0] * bytes[type];
  return row % 16 == 0 && (swizzle == 0 || row <= 16u << swizzle);
}
int maps_encoded;
uint64_t map_words[32];  // what the last map was made of
int cuTensorMapEncodeTiled(void *map, int type, unsigned rank, void *address, const uint64_t *shape,
                           const uint64_t *strides, const unsigned *box, const unsigned *steps,
                           int interleave, int swizzle, int promotion, int fill) {
  if (failure) {
    int e = failure;
    failure = 0;
    return e;
  }
  if ((uintptr_t)map % 64) return INVALID_VALUE;
  if (!is_map(type, rank, address, shape, strides, box, steps, swizzle)) return INVALID_VALUE;
  const uint64_t plain[] = {type, rank, interleave, swizzle, fill};
  memcpy(map_words, plain, sizeof plain);
  for (unsigned i = 0; i < rank; i++) {
    map_words[5 + 4 * i] = shape[i];
    map_words[6 + 4 * i] = i ? strides[i - 1] : 0;
    map_words[7 + 4 * i] = box[i];
    map_words[8 + 4 * i] = steps[i];
  }
  memset(map, 0, 128);
  memcpy(map, &address, 8);
  maps_encoded++;
  return 0;
}
// Instead of `quiet`: each launch is appended to `log_words`, its parameters to the end, until it
// is full. A function is then a pointer to how many parameters it has, and the size of each.
typedef struct {
  int count, sizes[64];
} Kernel;
enum { LOGGED = 1 << 16 };
int recording, logged;
uint64_t log_words[LOGGED];
static void record(const Config *c, const void *f, void **p) {
  const Kernel *kernel = f;
  const uint64_t head[] = {(uintptr_t)f,
                           c->grid[0],
                           c->grid[1],
                           c->grid[2],
                           c->block[0],
                           c->block[1],
                           c->block[2],
                           c->shared,
                           (uintptr_t)c->stream,
                           c->count,
                           (uintptr_t)kernel->count};
  const int words = sizeof head / 8 + kernel->count;
  const int at = __atomic_fetch_add(&logged, words, __ATOMIC_RELAXED);  // threads launch at once
  if (at + words > LOGGED) return;
  uint64_t *word = log_words + at;
  memcpy(word, head, sizeof head);
  word += sizeof head / 8;
  for (int i = 0; i < kernel->count; i++) {
    memset(word, 0, 8);
    memcpy(word++, p[i], kernel->sizes[i]);
  }
}
static int is_launch(const Config *c, const void *f) {
  const unsigned *g = c->grid, *b = c->block;
  const Function *limits = function(f);
  const unsigned shared = limits ? limits->dynamic : MOST_SHARED;
  const unsigned most = limits ? limits->cluster : CLUSTER;
  if (!g[0] || !g[1] || !g[2] || g[0] > 0x7fffffff || g[1] > 0xffff || g[2] > 0xffff) return 0;
  if (!b[0] || !b[1] || !b[2] || b[0] > 1024 || b[1] > 1024 || b[2] > 64) return 0;
  if (b[0] * b[1] * b[2] > 1024 || c->shared > shared) return 0;
  for (unsigned i = 0; i < c->count; i++) {
    const int *size = c->attributes[i].value;
    if (c->attributes[i].id != CLUSTER_DIMENSION) continue;
    if (size[0] < 1 || (unsigned)size[0] > most || g[0] % size[0]) return 0;
  }
  return 1;
}
int cuLaunchKernelEx(const Config *c, void *f, void **p, void **extra) {
  if (!is_launch(c, f)) return INVALID_VALUE;
  if (recording && !failure) {
    record(c, f, p);
    return 0;
  }
  if (quiet && !failure) return 0;
  if (failure) {
    int e = failure;
    failure = 0;
    return e;
  }
  launches++;
  last = *c;
  last_function = f;
  last_context = depth ? stack[depth - 1] : 0;
  memcpy(attributes, c->attributes, c->count * sizeof(Attribute));
  for (int i = 0; i < 4; i++) words[i] = 0;
  memcpy(&words[0], p[0], 8);
  memcpy(&words[1], p[1], 8);
  memcpy(&words[2], p[2], 8);
  memcpy(&words[3], p[3], 4);
  return 0;
}
