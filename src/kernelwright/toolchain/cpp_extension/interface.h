// The interface of launcher.c for C++: launches without Python objects, and so without the
// interpreter's lock. It is passed in a capsule of this name.
#pragma once
#include <stdint.h>

#define KW_LAUNCHER_INTERFACE "kernelwright_launcher.interface"

enum { KW_MAP_BYTES = 128, KW_LAYOUT_BYTES = 136 };  // of a tensor map, and of one without address

// A kernel parameter.
typedef union {
  uint64_t u64;
  int32_t i32;
  int64_t i64;
  float f32;
  double f64;
  const char *bytes;
} Value;

typedef struct {
  // Returns the driver's error code. `launcher` is a Launcher; `grid` has three numbers if its
  // grid is open; `open` has the parameters that each call passes, in order.
  int (*start)(const void *launcher, void *stream, const int32_t *grid, const Value *open);
  // The kind of the n-th parameter that each call passes (p, i, l, f, d, b); 0 after the last.
  char (*kind)(const void *launcher, int n);
  int (*has_open_grid)(const void *launcher);
  int (*is_launcher)(const void *object);
  // In UTF-8; valid for the launcher's lifetime.
  const char *(*name)(const void *launcher);
  void (*describe)(int code, const char **symbol, const char **text);
  // Writes a tensor map of 128 bytes, aligned to 64, for a tensor at `address` on the launcher's
  // device. `layout` has KW_LAYOUT_BYTES. Returns the driver's error code.
  int (*encode)(const void *launcher, uint64_t address, const void *layout, void *map);
} LauncherInterface;
