// The observer of `kernelwright dissect`: the cost of each access and each branch of a kernel for a
// warp. It observes launches with one worker, of dissected builds.
#include "descriptor.h"
#include "requests.h"
#include "runtime.h"
#include "warp_convergence.h"

#include <memory>

namespace kw::emulator {
namespace {

// A tensor; its sectors that are read and written are counted.
struct Region {
  std::uint64_t start, end;
  std::uint64_t sectors_read, sectors_written;
};

// Sums over requests.
struct Sums {
  std::uint64_t requests, lanes, passes, least_passes, distinct_bytes;
};

// An instruction that accesses memory. `region`: the tensor that it accessed first, -1 for shared
// memory. `whole`: the sums if it were the first element of an aligned vector of 8 or 16 bytes in
// shared memory that is read as a whole.
struct Site {
  std::uint64_t where;
  std::int32_t region;
  std::uint32_t bytes, kind;
  Sums sums;
  std::uint64_t sectors;
  Sums whole[2];
};

// A basic block: how often warps executed it, with how many lanes, how often the lanes diverged
// after it; how often a lane accessed memory or waited in it.
struct Step {
  std::uint64_t where;
  std::uint64_t executions, lanes, parted, works;
  std::uint64_t ways[4];  // the blocks that came next
};

struct Execution {
  std::uint32_t lanes, step;
  std::uintptr_t next;
  bool parted;
};

struct Open {
  Request request;
  std::uint32_t site;
  std::uint64_t key;
};

struct Warp {
  std::uint32_t live = 0;
  Table accesses, blocks;
  std::vector<Open> open;
  std::vector<std::uint32_t> spare;  // entries of `open` that can be reused
  std::vector<Execution> executions;
};

struct Touched {
  std::vector<bool> read, written;
};

std::vector<Region> regions;
std::vector<Touched> touched;
std::vector<Site> sites;
std::vector<Step> steps;
Table site_numbers, step_numbers;
std::vector<Warp> warps;  // of all blocks of a cluster
std::vector<Lane> lanes;
Loops loops;

Lane &lane_of(const Thread &t) { return lanes[t.block->rank * t.block->count + t.number]; }
unsigned warps_of(const Block &b) { return (b.count + 31) / 32; }
unsigned first_warp(const Block &b) { return b.rank * warps_of(b); }
Warp &warp_of(const Thread &t) { return warps[first_warp(*t.block) + t.warp()]; }

// ---- the cost of a request

void mark(Region &r, std::vector<bool> &seen, std::uint64_t &count, std::uintptr_t sector) {
  const std::uintptr_t first = r.start / kSector, last = (r.end - 1) / kSector;
  if (sector < first || sector > last) return;
  if (seen.empty()) seen.resize(last - first + 1);
  if (!seen[sector - first]) seen[sector - first] = true, ++count;
}

void add(Sums &s, const Request &r) {
  if (!r.lanes) return;
  const Passes p = passes_of(r);
  ++s.requests;
  s.lanes += static_cast<unsigned>(__builtin_popcount(r.lanes));
  s.passes += p.taken, s.least_passes += p.least, s.distinct_bytes += p.bytes;
}

// The request of the lanes at the start of a vector, if each read all of it.
Request leaders(const Request &r, unsigned bytes) {
  Request whole = r;
  whole.bytes = bytes;
  for (unsigned i = 0; i < 32; ++i)
    if (r.lanes >> i & 1 && r.address[i] % bytes) whole.lanes &= ~(1u << i);
  return whole;
}

void finish(Open &o) {
  const Request &r = o.request;
  if (!r.lanes) return;
  Site &s = sites[o.site];
  if (s.region < 0) {
    add(s.sums, r);
    for (unsigned i = 0; i < 2; ++i)
      if (r.bytes < 8u << i) add(s.whole[i], leaders(r, 8u << i));
  } else {
    ++s.sums.requests;
    s.sums.lanes += static_cast<unsigned>(__builtin_popcount(r.lanes));
    Region &region = regions[static_cast<unsigned>(s.region)];
    Touched &seen = touched[static_cast<unsigned>(s.region)];
    each_sector(r, [&](std::uintptr_t sector) {
      ++s.sectors;
      if (!(s.kind & kWrite) || s.kind & kAtomic)
        mark(region, seen.read, region.sectors_read, sector);
      if (s.kind & kWrite) mark(region, seen.written, region.sectors_written, sector);
    });
  }
  o.request.lanes = 0;
}

void finish(const Execution &e) {
  if (!e.lanes) return;
  Step &s = steps[e.step];
  ++s.executions;
  s.lanes += static_cast<unsigned>(__builtin_popcount(e.lanes));
  s.parted += e.parted;
}

// ---- one access, one step

void works(const Thread &t) {
  const Lane &lane = lane_of(t);
  if (lane.block) ++steps[warp_of(t).executions[lane.execution].step].works;
}

std::int32_t region_of(const Block &b, std::uintptr_t at) {
  const auto shared = reinterpret_cast<std::uintptr_t>(b.shared);
  if (b.shared && at >= shared && at < shared + b.shared_bytes + b.dynamic_bytes) return -1;
  for (std::size_t i = 0; i < regions.size(); ++i)
    if (at >= regions[i].start && at < regions[i].end) return static_cast<std::int32_t>(i);
  return -2;  // constants
}

void access(Thread &t, const void *address, unsigned bytes, unsigned kind, const void *where) {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  const auto place = reinterpret_cast<std::uintptr_t>(where);
  const auto fresh = static_cast<std::uint32_t>(sites.size());
  const std::uint32_t site = site_numbers.at(place, fresh);
  if (site == fresh) sites.push_back({place, region_of(*t.block, at), bytes, kind & 7, {}, 0, {}});
  if (sites[site].region == -2) return;
  works(t);
  Warp &w = warp_of(t);
  const std::uint32_t me = 1u << t.lane();
  for (std::uint64_t key = mixed(place, lane_of(t).turns);; ++key) {
    const auto next = w.spare.empty() ? static_cast<std::uint32_t>(w.open.size()) : w.spare.back();
    std::uint32_t &number = w.accesses.at(key, next);
    const bool taken =
        number < w.open.size() && w.open[number].request.lanes && w.open[number].key == key;
    if (taken && w.open[number].request.lanes & me) continue;  // a second execution
    if (!taken) {
      number = next;
      if (next == w.open.size())
        w.open.push_back({});
      else
        w.spare.pop_back();
      w.open[next].site = site, w.open[next].key = key;
      w.open[next].request.bytes = bytes;
    }
    Open &o = w.open[number];
    o.request.lanes |= me;
    o.request.address[t.lane()] = at;
    if (o.request.lanes == ~0u) {
      finish(o);
      w.spare.push_back(number);
    }
    return;
  }
}

void path(Thread &t, const void *where) {
  const auto place = reinterpret_cast<std::uintptr_t>(where);
  Warp &w = warp_of(t);
  Lane &lane = lane_of(t);
  if (lane.block) {
    Execution &e = w.executions[lane.execution];
    e.parted |= e.next && e.next != place;
    e.next = place;
    for (std::uint64_t &way : steps[e.step].ways) {
      if (!way) way = place;
      if (way == place) break;
    }
  }
  const auto fresh = static_cast<std::uint32_t>(steps.size());
  const std::uint32_t step = step_numbers.at(place, fresh);
  if (step == fresh) steps.push_back({place, 0, 0, 0, 0, {}});
  lane.enter(place, step, loops);
  const std::uint32_t me = 1u << t.lane();
  for (std::uint64_t key = mixed(place, lane.turns);; ++key) {
    const auto next = static_cast<std::uint32_t>(w.executions.size());
    lane.execution = w.blocks.at(key, next);
    if (lane.execution == next) w.executions.push_back({0, step, 0, false});
    Execution &e = w.executions[lane.execution];
    if (e.lanes & me) continue;
    e.lanes |= me;
    return;
  }
}

// ---- convergence of lanes

// All live lanes of a warp have converged: their earlier executions are complete, and they execute
// the current one together.
void converge(const Block &b, unsigned number) {
  Warp &w = warps[first_warp(b) + number];
  Lane *const its = &lanes[b.rank * b.count + number * 32];
  for (Open &o : w.open) finish(o);
  w.open.clear(), w.spare.clear(), w.accesses.clear();
  std::vector<Execution> present;
  std::vector<bool> kept(w.executions.size());
  w.blocks.clear();
  for (std::uint32_t left = w.live; left; left &= left - 1) {
    const auto i = static_cast<unsigned>(__builtin_ctz(left));
    Lane &lane = its[i];
    lane.converge();
    if (!lane.block) continue;
    const auto next = static_cast<std::uint32_t>(present.size());
    const Execution &was = w.executions[lane.execution];
    kept[lane.execution] = true;
    lane.execution = w.blocks.at(mixed(lane.block, 0), next);
    if (lane.execution == next) present.push_back({0, was.step, 0, false});
    present[lane.execution].lanes |= 1u << i;
  }
  for (std::size_t i = 0; i < w.executions.size(); ++i)
    if (!kept[i]) finish(w.executions[i]);
  w.executions.swap(present);
}

void block_begin(Block &b) {
  warps.resize(b.cluster * warps_of(b));
  lanes.resize(b.cluster * b.count);
  for (unsigned i = 0; i < b.count; ++i) {
    const Thread &t = b.threads[i];
    warp_of(t).live |= 1u << t.lane();
    lane_of(t).converge();
    lane_of(t).block = 0;
  }
}
void block_end(Block &b) {
  for (unsigned i = 0; i < warps_of(b); ++i) {
    warps[first_warp(b) + i].live = 0;
    converge(b, i);
  }
}
void thread_exit(Thread &t) { warp_of(t).live &= ~(1u << t.lane()); }
void barrier(Block &b) {
  for (unsigned i = 0; i < b.count; ++i)
    if (b.threads[i].wait != kNothing) works(b.threads[i]);
  for (unsigned i = 0; i < warps_of(b); ++i) converge(b, i);
}
void warp(Thread &first, unsigned those) {
  works(first);
  if (those == warp_of(first).live) converge(*first.block, first.warp());
}
void across(Thread &t, const Across &) { works(t); }

// ---- asynchronous instructions: one request each

constexpr std::uint32_t kBulk = 16, kProductKind = 32;

Site &site_of(const void *where, std::int32_t region, unsigned bytes, std::uint32_t kind) {
  const auto place = reinterpret_cast<std::uintptr_t>(where);
  const auto fresh = static_cast<std::uint32_t>(sites.size());
  const std::uint32_t site = site_numbers.at(place, fresh);
  if (site == fresh) sites.push_back({place, region, bytes, kind, {}, 0, {}});
  Site &s = sites[site];
  ++s.sums.requests, ++s.sums.lanes;
  return s;
}

void copies(const Thread &t, const Engine &e) {
  const Bulk &c = *e.copy;
  const bool box = c.kind == Bulk::kBoxLoad || c.kind == Bulk::kBoxStore;
  if (c.kind == Bulk::kSend) return;
  const std::int32_t region =
      region_of(*t.block, box ? c.map.address : reinterpret_cast<std::uintptr_t>(c.global));
  if (region < 0) return;
  Site &s = site_of(e.where, region, box ? box_bytes(c.map) : c.bytes,
                    kBulk | (c.stores() ? unsigned(kWrite) : unsigned(kRead)));
  Region &its = regions[static_cast<unsigned>(region)];
  Touched &seen = touched[static_cast<unsigned>(region)];
  const auto touch = [&](const void *from, unsigned bytes) {
    const auto at = reinterpret_cast<std::uintptr_t>(from);
    for (std::uintptr_t sector = at / kSector; sector <= (at + bytes - 1) / kSector; ++sector) {
      ++s.sectors;
      if (c.stores())
        mark(its, seen.written, its.sectors_written, sector);
      else
        mark(its, seen.read, its.sectors_read, sector);
    }
  };
  if (box)
    each_run(c.map, c.first, touch);
  else
    touch(c.global, c.bytes);
}

// Shared memory delivers 128 bytes at once, 8 units of an operand that follow each other along its
// rows (with contiguous k) or along k, if these lie in different banks.
void operand(Sums &s, std::uint64_t bits, unsigned rows, const Product &p, Format f, bool k_major) {
  std::vector<unsigned> units;
  each_unit(Descriptor(bits), rows, p.k, f, k_major, [&](unsigned at) { units.push_back(at); });
  const unsigned along = static_cast<unsigned>(units.size()) / (k_major ? rows : p.k);
  for (unsigned first = 0; first < units.size(); first += 8 * along)
    for (unsigned i = 0; i < along; ++i) {
      unsigned count[8] = {}, most = 0;
      for (unsigned u = first + i; u < first + 8 * along && u < units.size(); u += along)
        most = std::max(most, ++count[units[u] / 16 % 8]);
      s.passes += most, ++s.least_passes;
    }
  s.distinct_bytes += units.size() * 16;
}

void product(const Engine &e) {
  const Product &p = *e.product;
  const unsigned bytes = bits_of(p.a) / 8 * p.k * (p.n + (p.from_registers ? 0 : 64));
  Site &s = site_of(e.where, -1, bytes, kProductKind);
  if (!p.from_registers) operand(s.sums, p.at_a, 64, p, p.a, p.a_k_major);
  operand(s.sums, p.at_b, p.n, p, p.b, p.b_k_major);
}

void engine(Thread &t, const Engine &e) {
  works(t);
  if (e.what == Engine::kCopyBegins) copies(t, e);
  if (e.what == Engine::kProductIssued && t.number % kWarpGroup == 0) product(e);
}

const Observer observer = {nullptr, nullptr, block_begin, block_end, nullptr, thread_exit,
                           barrier, warp,    access,      nullptr,   path,    across,
                           nullptr, nullptr, nullptr,     nullptr,   engine};

}  // namespace
}  // namespace kw::emulator

using namespace kw::emulator;

#pragma GCC visibility push(default)
extern "C" {
const Observer *kw_dissect_observer() { return &observer; }

// Called before a launch that may access the memory of these tensors.
void kw_dissect_begin(const Region *those, std::size_t count) {
  regions.assign(those, those + count);
  touched.assign(count, {});
  sites.clear(), steps.clear(), site_numbers.clear(), step_numbers.clear();
  warps.clear(), lanes.clear();
  loops = {};
}
const Region *kw_dissect_regions() { return regions.data(); }
const Site *kw_dissect_sites(std::size_t *count) {
  *count = sites.size();
  return sites.data();
}
const Step *kw_dissect_steps(std::size_t *count) {
  *count = steps.size();
  return steps.data();
}
}
#pragma GCC visibility pop
