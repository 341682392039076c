// The costs of the first launch of each kernel by line: the observer's counts as a file.
#include <dlfcn.h>

#include <fstream>
#include <set>

#include "host.h"

namespace kw::program {
namespace {

struct Region {  // as in dissect/dissect.cpp
  std::uint64_t start, end, read, written;
};
struct Functions {
  const emulator::Observer *(*observer)();
  void (*begin)(const Region *, std::size_t);
  const Region *(*regions)();
  const char *(*sites)(std::size_t *);
  const char *(*steps)(std::size_t *);
} dissect;

std::size_t site_bytes, step_bytes;
std::set<std::string> seen;
std::vector<Allocation> memory;
const Job *present = nullptr;
emulator::Launch launch;

bool before(const Job &job, const emulator::Launch &l) {
  if (!seen.insert(job.name).second) return false;
  present = &job, launch = l;
  memory = allocations();
  std::vector<Region> regions;
  for (const Allocation &a : memory) {
    const auto start = reinterpret_cast<std::uint64_t>(a.at);
    regions.push_back({start, start + a.bytes, 0, 0});
  }
  dissect.begin(regions.data(), regions.size());
  return true;
}

void after() {
  const char *folder = getenv("KERNELWRIGHT_RUN");
  if (!present || !folder) return;
  std::ofstream out(std::string(folder) + "/dissected", std::ios::binary | std::ios::app);
  const auto number = [&](std::uint64_t n) { out.write(reinterpret_cast<char *>(&n), sizeof n); };
  const std::string name = present->name;
  number(name.size()), out << name;
  for (const unsigned n : {launch.grid.x, launch.grid.y, launch.grid.z, launch.block.x,
                           launch.block.y, launch.block.z})
    number(n);
  number(memory.size());
  const Region *regions = dissect.regions();
  for (std::size_t i = 0; i < memory.size(); ++i) {
    number(reinterpret_cast<std::uint64_t>(memory[i].where)), number(memory[i].bytes);
    number(regions[i].read), number(regions[i].written);
  }
  std::size_t count = 0;
  const char *data = dissect.sites(&count);
  number(count), out.write(data, static_cast<std::streamsize>(count * site_bytes));
  data = dissect.steps(&count);
  number(count), out.write(data, static_cast<std::streamsize>(count * step_bytes));
  present = nullptr;
}

}  // namespace

void dissect_launches(const std::string &library) {
  void *lib = dlopen(library.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (!lib) {
    fprintf(stderr, "%s\n", dlerror());
    exit(3);
  }
  const auto get = [&](auto &function, const char *name) {
    function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(lib, name));
  };
  get(dissect.observer, "kw_dissect_observer");
  get(dissect.begin, "kw_dissect_begin");
  get(dissect.regions, "kw_dissect_regions");
  get(dissect.sites, "kw_dissect_sites");
  get(dissect.steps, "kw_dissect_steps");
  site_bytes = std::stoul(setting("site_bytes", "0"));
  step_bytes = std::stoul(setting("step_bytes", "0"));
  observe(dissect.observer(), before, after);
}

}  // namespace kw::program
