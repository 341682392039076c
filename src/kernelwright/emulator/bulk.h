// Copies by the tensor memory accelerator: blocks of bytes and boxes of tensors, between global and
// shared memory. A copy happens as late as a GPU may choose: when its thread waits for it, or when
// no thread of the cluster can continue without it.
#pragma once
#include <cstring>

#include "async.h"
#include "boxes.h"
#include "cluster.h"
#include "reductions.h"

namespace kw::emulator {
namespace {

const char *wrong_map(const TensorMap &m, unsigned dimensions) {
  if (m.mark != kTensorMap) return "a copy names an address that holds no tensor map";
  if (m.dimensions != dimensions) return "a copy names a tensor map of other dimensions";
  return nullptr;
}

void tell(Thread &t, const Engine &step) {
  const Observer *o = t.block->launch->observer;
  if (o && o->engine) observed(t, step.where, [&] { o->engine(t, step); });
}

// Elements that a store writes or combines with others.
void put(const Bulk &c, unsigned char *to, const unsigned char *from, unsigned bytes) {
  if (c.reduction == kReplace) {
    std::memcpy(to, from, bytes);
    return;
  }
  const unsigned each = kTypeBytes[c.type];
  for (unsigned i = 0; i < bytes; i += each) reduce(c.reduction, c.type, to + i, from + i);
}
// What a box has outside of its tensor.
void fill(const TensorMap &m, unsigned char *to) {
  std::memset(to, 0, m.bytes);
  if (!m.nan) return;
  std::memset(to, 0xff, m.bytes);
  to[m.bytes - 1] = 0x7f;
}

void complete(Worker &w, const Bulk &c) {
  Running &b = w.blocks[c.block->rank];
  if (!b.alive && !c.stores())
    fail_at(*c.thread, c.where, "copies to block " + place(b.index) + ", which has ended,");
  unsigned char *const shared = memory_of(w, b);
  switch (c.kind) {
    case Bulk::kLoad:
      std::memcpy(shared + c.at, c.global, c.bytes);
      break;
    case Bulk::kSend:
      std::memmove(shared + c.at, memory_of(w, running(*c.thread)) + c.from, c.bytes);
      break;
    case Bulk::kStore:
      put(c, static_cast<unsigned char *>(c.global), shared + c.at, c.bytes);
      break;
    case Bulk::kBoxLoad:
      each_element(c.map, c.first, [&](const unsigned char *from, unsigned at) {
        unsigned char *to = shared + swizzled(c.at + at, c.map.swizzle);
        if (from)
          std::memcpy(to, from, c.map.bytes);
        else
          fill(c.map, to);
      });
      break;
    case Bulk::kBoxStore:
      each_element(c.map, c.first, [&](unsigned char *to, unsigned at) {
        if (to) put(c, to, shared + swizzled(c.at + at, c.map.swizzle), c.map.bytes);
      });
      break;
  }
  if (c.stores()) return;
  const Place p = {&b, c.mbarrier};
  Mbarrier &m = mbarrier_of(*c.thread, p, c.where);
  count(*c.thread, m, -static_cast<std::int64_t>(c.bytes), c.where);
  tell(*c.thread, {Engine::kCopyEnds, c.where, &c, m.phase, ends(m), false, nullptr, nullptr});
  settle(p, m);
}

// The copy that has been under way for the longest time; in a random order, any of them.
bool complete_one(Worker &w) {
  if (w.bulk.empty()) return false;
  const std::size_t i = w.launch->seed ? draw(w.random) % w.bulk.size() : 0;
  const Bulk c = w.bulk[i];
  w.bulk.erase(w.bulk.begin() + static_cast<std::ptrdiff_t>(i));
  complete(w, c);
  return true;
}

void start(Thread &t, Bulk c) {
  Worker &w = worker_of(&t);
  w.busy = true;
  ++w.progress;
  const auto &barriers = w.blocks[c.block->rank].mbarriers;
  const auto counted = barriers.find(c.mbarrier);
  c.phase = counted == barriers.end() || c.stores() ? 0 : counted->second.phase;
  tell(t, {Engine::kCopyBegins, c.where, &c, 0, false, false, nullptr, nullptr});
  w.bulk.push_back(c);
  if (w.launch->seed && draw(w.random) % 2) complete_one(w);
  w.busy = false;
}

// Ends the stores of a thread: all, or those of its groups but for the most recent ones.
void end_stores(Thread &t, unsigned groups, bool all) {
  Worker &w = worker_of(&t);
  if (w.bulk.empty() || !t.async) return;
  for (std::size_t i = 0; i < w.bulk.size();) {
    const Bulk c = w.bulk[i];
    if (!c.stores() || c.thread != &t || !(all || c.group + groups < t.async->bulk_group)) {
      ++i;
      continue;
    }
    w.bulk.erase(w.bulk.begin() + static_cast<std::ptrdiff_t>(i));
    complete(w, c);
  }
}

void check_copy(Thread &t, unsigned address, unsigned bytes, const void *global,
                const void *where) {
  if (bytes % 16 || !bytes) fail_at(t, where, say("copies %u bytes, no multiple of 16,", bytes));
  if ((address & ((1u << kRankAt) - 1)) % 16 || reinterpret_cast<std::uintptr_t>(global) % 16)
    fail_at(t, where, "copies to or from an address that is no multiple of 16");
}
// A place of `bytes` bytes that begins at a multiple of 16, as `find` for other instructions.
Place find_bytes(Thread &t, unsigned address, unsigned bytes, const char *what, const void *where) {
  Place p = find(t, address, 16, what, where);
  if (p.at + bytes > bytes_of(*p.block))
    fail_at(t, where,
            say("%s bytes %u to %u of shared memory, which has %llu,", what, p.at, p.at + bytes - 1,
                bytes_of(*p.block)));
  return p;
}
const TensorMap &map_at(Thread &t, const void *at, unsigned dimensions, const void *where) {
  const auto &map = *static_cast<const TensorMap *>(at);
  if (reinterpret_cast<std::uintptr_t>(at) % 64)
    fail_at(t, where, "names a tensor map that is not aligned to 64 bytes,");
  if (const char *wrong = wrong_map(map, dimensions)) fail_at(t, where, say("fails: %s", wrong));
  return map;
}
void check_box(Thread &t, unsigned at, const void *where) {
  if (at % 128)
    fail_at(t, where, say("copies a box at byte %u of shared memory, no multiple of 128,", at));
}

}  // namespace
}  // namespace kw::emulator

void kw_bulk_load(unsigned to, const void *from, unsigned bytes, unsigned mbarrier) {
  Thread &t = *kw_current;
  check_copy(t, to, bytes, from, HERE);
  const Place p = find_bytes(t, to, bytes, "copies to", HERE);
  const Place counted = find(t, mbarrier, 8, "copies to", HERE);
  Bulk c = {};
  c.kind = Bulk::kLoad, c.thread = &t, c.where = HERE, c.block = p.block, c.at = p.at;
  c.bytes = bytes, c.global = const_cast<void *>(from), c.mbarrier = counted.at;
  start(t, c);
}
void kw_bulk_send(unsigned to, unsigned from, unsigned bytes, unsigned mbarrier) {
  Thread &t = *kw_current;
  check_copy(t, to, bytes, nullptr, HERE);
  const Place p = find_bytes(t, to, bytes, "copies to", HERE);
  const Place source = find_bytes(t, from, bytes, "copies from", HERE);
  const Place counted = find(t, mbarrier, 8, "copies to", HERE);
  if (counted.block != p.block)
    fail_at(t, HERE, "copies to one block and counts the bytes at another's mbarrier");
  Bulk c = {};
  c.kind = Bulk::kSend, c.thread = &t, c.where = HERE, c.block = p.block, c.at = p.at;
  c.from = source.at, c.bytes = bytes, c.mbarrier = counted.at;
  start(t, c);
}
void kw_bulk_store(void *to, unsigned from, unsigned bytes, Reduction reduction, unsigned type) {
  Thread &t = *kw_current;
  check_copy(t, from, bytes, to, HERE);
  const Place p = find_bytes(t, from, bytes, "copies from", HERE);
  Bulk c = {};
  c.kind = Bulk::kStore, c.thread = &t, c.where = HERE, c.block = p.block, c.at = p.at;
  c.bytes = bytes, c.global = to, c.group = async_of(t).bulk_group;
  c.reduction = reduction, c.type = type;
  start(t, c);
}
void kw_box_load(unsigned to, const void *at_map, const int *at, unsigned dimensions,
                 unsigned mbarrier, unsigned blocks) {
  Thread &t = *kw_current;
  const TensorMap &map = map_at(t, at_map, dimensions, HERE);
  const unsigned bytes = box_bytes(map);
  const Place p = find_bytes(t, to, bytes, "copies to", HERE);
  const Place counted = find(t, mbarrier, 8, "copies to", HERE);
  check_box(t, p.at, HERE);
  Bulk c = {};
  c.kind = Bulk::kBoxLoad, c.thread = &t, c.where = HERE, c.at = p.at, c.bytes = bytes;
  c.map = map, c.mbarrier = counted.at;
  std::memcpy(c.first, at, dimensions * sizeof *at);
  if (!blocks) {
    if (counted.block != p.block)
      fail_at(t, HERE, "copies to one block and counts the bytes at another's mbarrier");
    c.block = p.block;
    start(t, c);
    return;
  }
  if (blocks >> t.block->cluster)
    fail_at(t, HERE,
            say("copies to the blocks 0x%x of a cluster that has %u,", blocks, t.block->cluster));
  for (unsigned rank = 0; rank < t.block->cluster; ++rank)
    if (blocks >> rank & 1) c.block = &worker_of(&t).blocks[rank], start(t, c);
}
void kw_box_store(const void *at_map, unsigned from, const int *at, unsigned dimensions,
                  Reduction reduction) {
  Thread &t = *kw_current;
  const TensorMap &map = map_at(t, at_map, dimensions, HERE);
  const Place p = find_bytes(t, from, box_bytes(map), "copies from", HERE);
  check_box(t, p.at, HERE);
  Bulk c = {};
  c.kind = Bulk::kBoxStore, c.thread = &t, c.where = HERE, c.block = p.block, c.at = p.at;
  c.map = map, c.group = async_of(t).bulk_group;
  c.reduction = reduction, c.type = map.type;
  std::memcpy(c.first, at, dimensions * sizeof *at);
  start(t, c);
}
void kw_box_prefetch(const void *at_map) {
  const auto &map = *static_cast<const TensorMap *>(at_map);
  map_at(*kw_current, at_map, map.dimensions, HERE);
}
void kw_bulk_commit() {
  Thread &t = *kw_current;
  ++async_of(t).bulk_group;
  tell(t, {Engine::kStoresCommitted, HERE, nullptr, 0, false, false, nullptr, nullptr});
}
void kw_bulk_wait(unsigned groups, bool reads) {
  Thread &t = *kw_current;
  Worker &w = worker_of(&t);
  w.busy = true;
  end_stores(t, groups, false);
  const unsigned last = async_of(t).bulk_group;
  tell(t, {Engine::kStoresEnded, HERE, nullptr, last > groups ? last - groups : 0, false, reads,
           nullptr, nullptr});
  w.busy = false;
}
void kw_fence_proxy_async() {
  tell(*kw_current, {Engine::kProxyFence, HERE, nullptr, 0, false, false, nullptr, nullptr});
}
