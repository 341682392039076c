// Asynchronous copies: what a thread has begun, in groups.
#pragma once
#include <cstring>
#include <memory>

#include "fibers.h"

namespace kw::emulator {

struct Copy {
  void *to;
  unsigned bytes, group;
  const void *where;
  unsigned char data[16];
};
struct Async {
  std::vector<Copy> copies;        // by group
  unsigned group = 0;              // that is being filled
  unsigned bulk_group = 0;         // of stores by the tensor memory accelerator
  unsigned issued = 0;             // products
  std::vector<unsigned> products;  // that it had issued at the end of each group
};

namespace {

// End the copies of the groups before `group`.
void end_copies(Thread &t, unsigned group) {
  if (!t.async) return;
  const Observer *o = t.block->launch->observer;
  auto &copies = t.async->copies;
  std::size_t n = 0;
  for (; n < copies.size() && copies[n].group < group; ++n) {
    const Copy &c = copies[n];
    if (o && o->copy) observed(t, c.where, [&] { o->copy(t, c.to, c.bytes, true, c.where); });
    std::memcpy(c.to, c.data, c.bytes);
  }
  copies.erase(copies.begin(), copies.begin() + n);
}

void forget_copies(Thread &t) {
  if (!t.async) return;
  end_copies(t, ~0u);
  delete t.async;
  t.async = nullptr;
}

}  // namespace
}  // namespace kw::emulator

using namespace kw::emulator;

namespace kw::emulator {
namespace {
Async &async_of(Thread &t) {
  Worker &w = worker_of(&t);
  if (!t.async) {
    const bool busy = w.busy;
    w.busy = true;
    t.async = new Async;
    w.busy = busy;
  }
  return *t.async;
}
}  // namespace
}  // namespace kw::emulator

void kw_async_copy(void *to, const void *from, unsigned bytes, unsigned read, const void *where) {
  Thread *t = kw_current;
  if (!where) where = HERE;
  Worker &w = worker_of(t);
  async_of(*t);
  if (read) kw_access(from, read, kRead, where);
  Copy c = {to, bytes, t->async->group, where, {}};
  std::memcpy(c.data, from, read);  // may fault: not busy
  w.busy = true;
  const Observer *o = t->block->launch->observer;
  if (o && o->copy) o->copy(*t, to, bytes, false, where);
  t->async->copies.push_back(c);
  w.busy = false;
}

void kw_async_commit() {
  if (kw_current->async) ++kw_current->async->group;
}

void kw_async_wait(unsigned groups) {
  Thread *t = kw_current;
  if (!t->async) return;
  const unsigned last = t->async->group;
  end_copies(*t, last > groups ? last - groups : 0);
}

void *kw_map_shared(void *p, unsigned rank) {
  Thread *t = kw_current;
  Running &b = worker_of(t).blocks[rank];
  if (rank >= t->block->cluster)
    kw_fail("asks for block %u of a cluster that has %u", rank, t->block->cluster);
  return memory_of(worker_of(t), b) + (static_cast<unsigned char *>(p) - t->block->shared);
}

const Block *kw_shared_of(const void *p, unsigned long long *offset) {
  const auto *at = static_cast<const unsigned char *>(p);
  Worker &w = worker_of(kw_current);
  for (unsigned i = 0; i < w.cluster; ++i) {
    const auto &memory = w.blocks[i].memory;
    if (at < memory.data() || at >= memory.data() + memory.size()) continue;
    *offset = static_cast<unsigned long long>(at - memory.data());
    return &w.blocks[i];
  }
  return nullptr;
}

void kw_together(void *data, void (*act)(void *const *), const void *where) {
  kw_current->act = act;
  kw_current->call = where;
  kw_warp_wait(kTogether, 0xffffffffu, reinterpret_cast<std::uint64_t>(data), 0);
}
