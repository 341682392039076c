// Programs measure a kernel by launching it many times with the same arguments. A launch is a
// function of its arguments and of memory: if both are as they were before an earlier launch, what
// that launch wrote is copied to memory, and the kernel is not executed again.
//
// Kept apart from this: kernels that print, allocate or read clocks
// (`kw_program_has_side_effects`), arguments that point to memory of the host, memory registered by
// the program, launches from several threads of the host, and launches too short to be worth it.
#include <link.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <set>
#include <thread>

#include "launch_cache.h"

namespace kw::program {
namespace {

using u64 = std::uint64_t;
constexpr size_t kBlock = 64 << 10;
constexpr size_t kMost = size_t(2) << 30;      // bytes that a kernel may reach
constexpr size_t kStored = size_t(512) << 20;  // bytes of all changes
constexpr double kRate = 4e9;                  // bytes of memory that are read in a second
constexpr double kLeast = 2e-4;                // seconds of a launch
constexpr unsigned kTries = 4;                 // launches that are compared without any success

struct Region {
  char *at;
  size_t bytes;
};
struct State {
  std::vector<Region> blocks;
  std::vector<u64> hashes;
  u64 whole = 0;
};
struct Change {
  char *at;
  std::vector<char> bytes;
};
struct Kernel {
  double seconds = 0;  // of its last execution
  unsigned runs = 0, tries = 0;
  bool repeats = false;
  std::map<u64, std::vector<Change>> changes;  // by the state of memory before
};

std::atomic<bool> never{false};
std::atomic<int> running{0};
size_t stored = 0;
double not_spent = 0;
std::map<std::string, Kernel> &kernels() {
  static std::map<std::string, Kernel> all;
  return all;
}

// The program's own segments: `data` those with its variables.
std::vector<Region> segments(bool data) {
  std::vector<Region> regions;
  const auto each = [&](dl_phdr_info *info) {
    for (int i = 0; i < info->dlpi_phnum; ++i) {
      const auto &p = info->dlpi_phdr[i];
      if (p.p_type == PT_LOAD && (!data || p.p_flags & PF_W))
        regions.push_back({reinterpret_cast<char *>(info->dlpi_addr + p.p_vaddr), p.p_memsz});
    }
    return 1;  // the first one is the program
  };
  dl_iterate_phdr(
      [](dl_phdr_info *info, size_t, void *f) { return (*static_cast<decltype(each) *>(f))(info); },
      const_cast<void *>(static_cast<const void *>(&each)));
  return regions;
}

// Whether the arguments hold a pointer to memory that is neither the device's nor the program's.
bool reaches_host(const void *closure, size_t bytes) {
  static const std::vector<Region> own = segments(false);
  for (size_t i = 0; i + 8 <= bytes; i += 8) {
    u64 word;
    std::memcpy(&word, static_cast<const char *>(closure) + i, 8);
    auto *const p = reinterpret_cast<char *>(word);
    if (word < 0x10000 || word >> 47 || holding(p)) continue;
    if (std::any_of(own.begin(), own.end(),
                    [&](const Region &r) { return p >= r.at && p < r.at + r.bytes; }))
      continue;
    unsigned char in_memory;
    if (!mincore(reinterpret_cast<void *>(word & ~u64(4095)), 1, &in_memory)) return true;
  }
  return false;
}

u64 mixed(u64 a, u64 b) {
  const auto product = static_cast<unsigned __int128>(a) * b;
  return static_cast<u64>(product) ^ static_cast<u64>(product >> 64);
}

u64 hash(const char *p, size_t bytes) {
  constexpr u64 kOdd[4] = {0x9e3779b97f4a7c15, 0xc2b2ae3d27d4eb4f, 0x165667b19e3779f9,
                           0xd6e8feb86659fd93};
  u64 lanes[4] = {bytes ^ kOdd[1], kOdd[2], kOdd[3], kOdd[0]}, word[8];
  for (; bytes >= 64; p += 64, bytes -= 64) {
    std::memcpy(word, p, 64);
    for (int i = 0; i < 4; ++i) lanes[i] = mixed(word[2 * i] ^ kOdd[i], word[2 * i + 1] ^ lanes[i]);
  }
  std::memset(word, 0, sizeof word);
  std::memcpy(word, p, bytes);
  for (int i = 0; i < 4; ++i) lanes[i] = mixed(word[2 * i] ^ kOdd[i], word[2 * i + 1] ^ lanes[i]);
  return mixed(mixed(lanes[0], lanes[1] ^ kOdd[2]) ^ lanes[2], lanes[3] ^ kOdd[3]);
}

std::vector<Region> reachable() {
  std::vector<Region> regions = segments(true);
  for (const Allocation &a : allocations()) regions.push_back({a.at, a.bytes});
  return regions;
}
size_t size_of(const std::vector<Region> &regions) {
  size_t sum = 0;
  for (const Region &r : regions) sum += r.bytes;
  return sum;
}

State state_of(const std::vector<Region> &regions) {
  State s;
  for (const Region &r : regions)
    for (size_t i = 0; i < r.bytes; i += kBlock)
      s.blocks.push_back({r.at + i, std::min(kBlock, r.bytes - i)});
  s.hashes.resize(s.blocks.size());
  std::atomic<size_t> next{0};
  const auto work = [&] {
    for (size_t i; (i = next++) < s.blocks.size();)
      s.hashes[i] = hash(s.blocks[i].at, s.blocks[i].bytes);
  };
  std::vector<std::thread> others;
  for (unsigned i = 1; i < std::thread::hardware_concurrency() && s.blocks.size() > 64; ++i)
    others.emplace_back(work);
  work();
  for (auto &t : others) t.join();
  for (size_t i = 0; i < s.blocks.size(); ++i)
    s.whole = mixed(s.whole ^ s.hashes[i], reinterpret_cast<u64>(s.blocks[i].at) | 1);
  return s;
}

// What differs, if it is little enough to be stored.
bool changes(const State &before, const State &after, std::vector<Change> *key) {
  size_t bytes = 0;
  for (size_t i = 0; i < after.blocks.size(); ++i)
    if (before.hashes[i] != after.hashes[i]) bytes += after.blocks[i].bytes;
  if (stored + bytes > kStored) return false;
  stored += bytes;
  for (size_t i = 0; i < after.blocks.size(); ++i)
    if (const Region &b = after.blocks[i]; before.hashes[i] != after.hashes[i])
      key->push_back({b.at, {b.at, b.at + b.bytes}});
  return true;
}

std::string signature(const Job &job) {
  std::string key;
  const auto add = [&](const auto &x) { key.append(reinterpret_cast<const char *>(&x), sizeof x); };
  const Config &c = job.config;
  add(job.entry), add(c.grid), add(c.block), add(c.shared), add(c.cluster), add(c.cooperative);
  return key.append(static_cast<const char *>(job.closure.get()), job.bytes);
}

// Executes, and stores what is written.
void compared(const std::vector<Region> &regions, const State &before, Kernel &its,
              const std::function<bool()> &execute) {
  ++its.tries;
  if (!execute()) return;
  const State after = state_of(regions);
  std::vector<Change> list;
  if (changes(before, after, &list)) its.changes[before.whole] = std::move(list);
}

void once_or_again(const Job &job, const std::function<bool()> &execute) {
  Kernel &its = kernels()[signature(job)];
  const auto timed = [&] {
    const double start = seconds();
    const bool well = execute();
    its.seconds = seconds() - start;
    return well;
  };
  const bool worn = its.tries >= kTries && !its.repeats;
  if (its.runs++ == 0 || worn || reaches_host(job.closure.get(), job.bytes)) {
    timed();
    return;
  }
  const std::vector<Region> regions = reachable();
  const size_t bytes = size_of(regions);
  if (bytes > kMost || its.seconds < kLeast + double(bytes) / kRate) {
    timed();
    return;
  }
  const double start = seconds();
  const State before = state_of(regions);
  const auto entry = its.changes.find(before.whole);
  if (entry == its.changes.end()) return compared(regions, before, its, timed);
  for (const Change &c : entry->second) std::memcpy(c.at, c.bytes.data(), c.bytes.size());
  if (!its.repeats) note("repeated", job.name);
  its.repeats = true;
  not_spent += its.seconds - (seconds() - start);
}

}  // namespace

double saved_seconds() { return not_spent; }
void never_repeat() { never = true; }

void repeatable(const Job &job, const std::function<bool()> &execute) {
  static const std::thread::id first = std::this_thread::get_id();
  if (++running > 1 || std::this_thread::get_id() != first) never = true;
  if (never || !job.bytes)
    execute();
  else
    once_or_again(job, execute);
  --running;
}

}  // namespace kw::program

extern "C" __attribute__((visibility("default"))) void kw_program_has_side_effects() {
  kw::program::never_repeat();
  kw::program::read_back();  // the user reads what they print
}
