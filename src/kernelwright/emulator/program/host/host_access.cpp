// What the host may touch: device memory only while a kernel or a function of the API runs, and
// managed memory that a kernel has written only after it has waited for the kernel.
#include <dlfcn.h>
#include <execinfo.h>
#include <link.h>
#include <signal.h>
#include <sys/mman.h>

#include <cstring>

#include "host.h"

namespace kw::program {
namespace {

constexpr size_t kMost = size_t(64) << 20;  // bytes of an allocation that changes its protection

std::recursive_mutex lock;
bool libraries = false;   // functions of libraries touch device memory
bool apart = false;       // the host is kept out of device memory
unsigned open_count = 0;  // of `Opened` for all memory
const void *program = nullptr;
std::uintptr_t image[2];  // where the program's own variables are
struct sigaction before = {};
std::vector<std::pair<Allocation, std::uint64_t>> writable;  // managed memory of a launch
std::vector<Allocation> closed;                              // managed memory

void protect(const Allocation &a, int how) { mprotect(a.mapped + a.guard, a.pages, how); }
bool device_only(const Allocation &a) { return a.kind == Kind::kDevice && a.pages <= kMost; }

const void *base_of(const void *address) {
  Dl_info info;
  return dladdr(address, &info) ? info.dli_fbase : nullptr;
}
// The program's line behind a fault, which may be in a function of the C library.
const void *line_of_fault() {
  void *frames[32];
  const int n = backtrace(frames, 32);
  for (int i = 1; i < n; ++i)
    if (base_of(frames[i]) == base_of(program)) return frames[i];
  return program;
}

void on_fault(int signal, siginfo_t *info, void *context) {
  const Allocation *a = kw_current ? nullptr : holding(info->si_addr);
  if (a && a->kind == Kind::kManaged) {
    for (const Allocation &each : closed)
      if (each.at == a->at)
        note("api", line_of(nullptr, 0, line_of_fault()) +
                        ": the host touches managed memory that a kernel has written (allocated "
                        "at " +
                        line_of(nullptr, 0, a->where) +
                        ") before it waits for the kernel (cudaDeviceSynchronize)");
    return synchronized();
  }
  const std::string freed = a || kw_current ? "" : freed_at(info->si_addr);
  if (a && device_only(*a))
    note("api", line_of(nullptr, 0, line_of_fault()) +
                    ": the host touches device memory, allocated at " +
                    line_of(nullptr, 0, a->where) + ": only cudaMemcpy reaches it");
  else if (!freed.empty())
    note("api", line_of(nullptr, 0, line_of_fault()) + ": the host touches " + freed);
  (void)context;
  sigaction(signal, &before, nullptr);  // the access is repeated and ends the program
}

// A hash of memory, of 8 bytes at a time.
std::uint64_t hash_of(const Allocation &a) {
  std::uint64_t h = 14695981039346656037ull, word;
  for (size_t i = 0; i + 8 <= a.bytes; i += 8) {
    std::memcpy(&word, a.at + i, 8);
    h = (h ^ word) * 1099511628211ull;
  }
  for (size_t i = a.bytes / 8 * 8; i < a.bytes; ++i) h = (h ^ a.at[i]) * 1099511628211ull;
  return h;
}

}  // namespace

void begin_apart(const void *inside) {
  program = inside;
  dl_iterate_phdr(
      [](dl_phdr_info *info, size_t, void *) {
        for (int i = 0; i < info->dlpi_phnum; ++i) {
          const auto &segment = info->dlpi_phdr[i];
          if (segment.p_type != PT_LOAD) continue;
          const std::uintptr_t start = info->dlpi_addr + segment.p_vaddr;
          if (!image[0] || start < image[0]) image[0] = start;
          image[1] = std::max(image[1], start + segment.p_memsz);
        }
        return 1;  // the first is the program
      },
      nullptr);
  apart = setting("observer", "").empty() && setting("dissector", "").empty();
  void *few[2];
  backtrace(few, 2);  // loads what it needs
  struct sigaction action = {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &action, &before);
}

void keep_apart(const Allocation &a) {
  std::lock_guard<std::recursive_mutex> hold(lock);
  if (apart && !open_count && device_only(a)) protect(a, PROT_NONE);
}
bool kept_apart() { return apart; }
bool kept_apart_from_libraries() { return !libraries; }
bool in_program(const void *p) {
  const auto at = reinterpret_cast<std::uintptr_t>(p);
  return at >= image[0] && at < image[1];
}

Opened::Opened() {
  std::lock_guard<std::recursive_mutex> hold(lock);
  if (!apart || open_count++) return;
  for (const Allocation &a : allocations())
    if (device_only(a)) protect(a, PROT_READ | PROT_WRITE);
}
Opened::~Opened() {
  std::lock_guard<std::recursive_mutex> hold(lock);
  if (!apart || --open_count) return;
  for (const Allocation &a : allocations())
    if (device_only(a)) protect(a, PROT_NONE);
}

OpenedPart::OpenedPart(const void *to, const void *from) : both_{to, from} {
  lock.lock();
  change(PROT_READ | PROT_WRITE);
}
OpenedPart::~OpenedPart() {
  change(PROT_NONE);
  lock.unlock();
}
void OpenedPart::change(int how) {
  if (apart && !open_count)
    for (const void *p : both_)
      if (const Allocation *a = holding(p); a && device_only(*a)) protect(*a, how);
}

void synchronized() {
  std::lock_guard<std::recursive_mutex> hold(lock);
  for (const Allocation &a : closed)
    if (const Allocation *now = holding(a.at); now && now->mapped == a.mapped)
      protect(a, PROT_READ | PROT_WRITE);
  closed.clear();
}

void managed_before(const Job &job) {
  std::lock_guard<std::recursive_mutex> hold(lock);
  synchronized();  // an earlier kernel of the same stream ends first
  writable.clear();
  if (!apart) return;
  const auto *const words = static_cast<const char *>(job.closure.get());
  for (size_t i = 0; i + 8 <= job.bytes; i += 8) {
    const void *p;
    std::memcpy(&p, words + i, 8);
    const Allocation *a = holding(p);
    if (a && a->kind == Kind::kManaged && a->pages <= kMost) writable.emplace_back(*a, hash_of(*a));
  }
}
void managed_after() {
  std::lock_guard<std::recursive_mutex> hold(lock);
  for (const auto &[a, hash] : writable)
    if (hash_of(a) != hash) {
      closed.push_back(a);
      protect(a, PROT_NONE);
    }
  writable.clear();
}

}  // namespace kw::program

extern "C" __attribute__((visibility("default"))) void kw_program_shares() {
  kw::program::apart = false;
  kw::program::libraries = true;
  kw::program::read_back();
}
