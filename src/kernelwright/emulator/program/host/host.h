// The interfaces between the parts of the host API.
#pragma once
#define KW_PROGRAM 1
#include <stdlib.h>

#include <cmath>
#include <memory>
#include <tuple>

#include <kw_emulator.h>

#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "program/cuda_types.h"
#include "program/launch.h"

// The program's line that made the call.
#define HERE __builtin_extract_return_addr(__builtin_return_address(0))

#pragma GCC visibility push(default)
namespace kw::program {

// ---- errors (device.cpp)

// Stores an error as the last one; every function of the API ends with `give`.
cudaError_t give(cudaError_t);
// An error of a kernel: every later call returns it.
void poison(cudaError_t);
cudaError_t poisoned();
// cudaFuncAttributeMaxDynamicSharedMemorySize of the kernels for which the program has set it.
std::map<const void *, size_t> &dynamic_limits();
// The API cannot be called from a kernel. `where`: the call of the function that checks this.
void from_host(const char *function, const void *where = HERE);

// ---- reports to the process that runs the program (report.cpp)

void note(const char *kind, const std::string &text);
std::string setting(const char *name, const char *otherwise);

// A failed launch or call of the API that the program has not looked at: reported at its end.
void unseen(const std::string &text);
// The program looks at the last error.
void seen();
// The host has, or may have, read what kernels have written.
void read_back();
// A kernel starts: whether its results are read back is known at the program's end.
void not_read_back(const Job &);
// "file.cu:12" of a line, and of an address.
std::string line_of(const char *file, int line, const void *where);

// ---- memory (memory.cpp)

enum class Kind { kDevice, kManaged, kPinned, kArray };
struct Allocation {
  char *at;
  size_t bytes;
  Kind kind;
  const void *where;  // the line that allocated it
  char *mapped;       // the mapping, which includes its guard pages
  size_t mapped_bytes;
  size_t guard, pages;  // bytes of it before the memory, and with the memory
  bool written;         // by the host, completely
  bool passed;          // a kernel has touched memory behind it
};
void *allocate(size_t bytes, Kind, const void *where);
bool release(void *, const void *where);
// The allocation that holds an address, or null.
const Allocation *holding(const void *);
std::vector<Allocation> allocations();
// Tells the observer which memory the host has written.
void wrote(const void *, size_t bytes);
// What freed an address, in words for a message; or nothing.
std::string freed_at(const void *);
// The host may touch device memory while one of these exists.
struct Opened {
  Opened();
  ~Opened();
};
// The allocations that hold two addresses.
class OpenedPart {
 public:
  OpenedPart(const void *to, const void *from);
  ~OpenedPart();

 private:
  void change(int how);
  const void *both_[2];
};
// Of a new allocation.
void keep_apart(const Allocation &);
bool kept_apart();
// Whether all that touches device memory is known: kernels and copies, not libraries.
bool kept_apart_from_libraries();
// Whether an address is that of a variable of the program, of the host or of the device.
bool in_program(const void *);
// From now on, the host cannot touch device memory; `inside`: an address of the program's code.
void begin_apart(const void *inside);
// The host waits for the kernels that it has launched.
void synchronized();
// The managed memory that a launch may write, before and after it.
void managed_before(const Job &);
void managed_after();
void tell_writes(void (*)(const void *, size_t bytes));

// ---- checks (checks.cpp)

// Checks all launches; `library` is the observer's.
void check_launches(const std::string &library, unsigned wanted);

// ---- costs (dissect.cpp)

void dissect_launches(const std::string &library);

// ---- launches (launches.cpp)

// Called around each launch; the observer gets those for which `before` returns true.
void observe(const emulator::Observer *, bool (*before)(const Job &, const emulator::Launch &),
             void (*after)());

void run(const Job &);
// Held during what an observer sees, which is not made for several threads of the host.
std::recursive_mutex &observed();
// Runs now, or when the graph that is being recorded is launched. `describe` says what the graph's
// node is.
cudaError_t in_stream(cudaStream_t, std::function<cudaError_t()>);
cudaError_t in_stream(cudaStream_t, cudaGraphNodeType, std::function<cudaError_t()>,
                      const std::function<void(CUgraphNode_st &)> &describe);

}  // namespace kw::program
#pragma GCC visibility pop
