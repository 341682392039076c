// The checks of a program's launches: its memory as regions, and the findings as a file.
#include <dlfcn.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <sstream>

#include "streams.h"

namespace kw::program {
namespace {

struct Region {  // as in checks/regions.h
  std::uintptr_t start, end;
  std::uint32_t number;
  bool written;
  const unsigned char *part;
  void *cells;
};

struct Functions {
  const emulator::Observer *(*observer)();
  void (*begin)(unsigned checks, unsigned char unwritten);
  void (*launch)(const Region *, std::size_t, const Region *, std::size_t);
  void (*wrote)(const void *, std::size_t);
  void (*freed)(const void *);
  const char *(*findings)(std::size_t *);
} checks;

constexpr unsigned kRaces = 1;  // as in checks/state.h

// What findings say of a launch.
struct Call {
  std::string kernel;
  emulator::Launch launch;
};
std::vector<Call> calls;
std::map<char *, std::uint32_t> numbers;  // of allocations
std::vector<Allocation> known;
std::vector<std::pair<const void *, size_t>> written;
std::vector<Region> variables, globals;
std::size_t told = 0, finding_bytes = 0;
emulator::Observer watching;  // that of the checks, which also sees the order of streams
const emulator::Observer *inner = nullptr;

void access(emulator::Thread &t, const void *p, unsigned bytes, unsigned kind, const void *where) {
  streams_see(p, bytes, kind, where);
  inner->access(t, p, bytes, kind, where);
}

void remember(const void *p, size_t bytes) { written.emplace_back(p, bytes); }

bool before(const Job &job, const emulator::Launch &launch) {
  std::vector<Region> regions;
  for (const Allocation &a : allocations()) {
    auto [at, fresh] = numbers.try_emplace(a.at, static_cast<std::uint32_t>(known.size()));
    if (!fresh && known[at->second].where != a.where) {
      checks.freed(a.at);
      at->second = static_cast<std::uint32_t>(known.size());
      fresh = true;
    }
    if (fresh) known.push_back(a);
    const auto start = reinterpret_cast<std::uintptr_t>(a.at);
    regions.push_back(
        {start, start + a.bytes, at->second, a.kind != Kind::kDevice, nullptr, nullptr});
  }
  regions.insert(regions.begin(), globals.begin(), globals.end());
  std::sort(regions.begin(), regions.end(),
            [](const Region &a, const Region &b) { return a.start < b.start; });
  calls.push_back({job.name, launch});
  checks.launch(regions.data(), regions.size(), variables.data(), variables.size());
  for (const auto &[p, bytes] : written) checks.wrote(p, bytes);
  written.clear();
  if (watches_streams()) streams_see(job);
  return true;
}

// The findings so far: after each launch that has more of them, because the program may end in any
// way.
void after() {
  std::size_t count = 0;
  const char *raw = checks.findings(&count);
  if (count == told) return;
  told = count;
  const char *folder = getenv("KERNELWRIGHT_RUN");
  if (!folder) return;
  std::ofstream(std::string(folder) + "/findings", std::ios::binary)
      .write(raw, static_cast<std::streamsize>(count * finding_bytes));
  std::ofstream text(std::string(folder) + "/calls");
  for (const Call &c : calls) {
    const auto &l = c.launch;
    text << "call\t" << c.kernel << '\t' << l.grid.x << '\t' << l.grid.y << '\t' << l.grid.z << '\t'
         << l.block.x << '\t' << l.block.y << '\t' << l.block.z << '\t' << l.shared << '\t'
         << l.cluster << '\t' << l.library.dynamic << '\n';
  }
  unsigned long long n = 0;
  const char *const *names = kw_unset_names(&n);
  for (unsigned long long i = 0; i < n; ++i)
    text << "local\t" << reinterpret_cast<std::uintptr_t>(names[i]) << '\t' << names[i] << '\n';
  for (const Allocation &a : known) text << "memory\t" << a.bytes << '\t' << a.where << '\n';
}

}  // namespace

void check_launches(const std::string &library, unsigned wanted) {
  void *lib = dlopen(library.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (!lib) {
    fprintf(stderr, "%s\n", dlerror());
    exit(3);
  }
  const auto get = [&](auto &function, const char *name) {
    function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(lib, name));
  };
  get(checks.observer, "kw_checks_observer");
  get(checks.begin, "kw_checks_begin");
  get(checks.launch, "kw_checks_launch");
  get(checks.wrote, "kw_checks_wrote");
  get(checks.freed, "kw_checks_freed");
  get(checks.findings, "kw_checks_findings");
  finding_bytes = std::stoul(setting("finding_bytes", "0"));
  std::istringstream offsets(setting("variables", ""));
  bool guard;
  for (std::uintptr_t at, bytes; offsets >> at >> bytes >> guard;)
    variables.push_back(
        {at, at + bytes, static_cast<std::uint32_t>(variables.size()), guard, nullptr, nullptr});
  std::istringstream own(setting("globals", ""));
  bool has_value;
  for (std::uintptr_t at, bytes; own >> at >> bytes >> has_value;) {
    globals.push_back(
        {at, at + bytes, static_cast<std::uint32_t>(known.size()), has_value, nullptr, nullptr});
    char *p = reinterpret_cast<char *>(at);
    known.push_back({p, bytes, Kind::kManaged, p, p, 0, true});
  }
  checks.begin(wanted, 0xff);
  tell_writes(remember);
  inner = checks.observer();
  watching = *inner;
  if (wanted & kRaces) {
    watching.access = access;
    watch_streams();
  }
  observe(&watching, before, after);
}

}  // namespace kw::program
