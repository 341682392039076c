// The observer behind `verify --check`: races, bounds, uninitialized reads, divergence.
// Observes launches of one worker; its interface is at the end of the file.
#include "sync_checks.h"

namespace kw::emulator {
namespace {

// ---- one access

// Lanes of one warp do not take turns by themselves: there, volatile orders nothing.
bool cannot_race(const Event &e, const Seen &s, bool in_shared) {
  if ((e.kind | s.kind) & kSent) return e.kind & s.kind & kAtomic;
  const unsigned strong = e.kind & s.kind & (kVolatile | kAtomic);
  if (strong & kAtomic) return true;
  const bool each = (e.kind & (kVolatile | kAtomic)) && (s.kind & (kVolatile | kAtomic));
  return each && !(in_shared && e.thread / 32 == s.t.warp());
}

// The plain write of a thread that now updates the same word atomically: the atomic updates of
// other threads must come after both.
bool initializes(const Event &e, const Seen &s) {
  return e.set && e.kind == kWrite && s.kind & kAtomic && e.thread == s.t.number &&
         e.block == number_of(*s.t.block);
}

// A read of a flag whose first value another thread writes in this launch. In another schedule, the
// read may precede that write.
bool may_come_first(const Cell &cell, unsigned bits, const Seen &s) {
  if (!(cell.written >> kFirst & bits) || !(s.kind & (kVolatile | kAtomic))) return false;
  if (!cell.write.set || order.before(cell.write, s.t)) return false;
  const Missing missing = order.missing(cell.write, s.t);
  return missing == kReleases || missing == kReads;
}

// A volatile read of what another block has written by a volatile write, and nothing orders them,
// though the thread has seen a later write of that block.
bool may_be_old(const Event &e, const Seen &s) {
  if (!e.set || !(e.kind & kVolatile) || e.kind & kSent || !(s.kind & kVolatile) ||
      e.block == number_of(*s.t.block))
    return false;
  if (order.before(e, s.t)) return false;
  const VolatileOrder::How how = volatile_order.later(e, s.t, s.address);
  return how == VolatileOrder::kPolled || (how && order.missing(e, s.t) != kNoLater);
}

void look_at_cell(Cell &cell, unsigned bits, const Seen &s, const Event &now, std::uint32_t turn,
                  bool written, bool in_shared) {
  if (cell.turn != turn) {
    cell.turn = turn;
    cell.write.set = cell.reads[0].set = cell.reads[1].set = 0;
    cell.written = in_shared ? 0 : cell.written & kEver;
  }
  const bool writes = s.kind & kWrite, reads = !writes || s.kind & kAtomic;
  if (wanted & kInit && reads && !written && (cell.written & bits) != bits)
    findings.add(s.finding(kNeverWritten));
  const bool old_value = !writes && !in_shared && may_be_old(cell.write, s);
  if (wanted & kInit && reads && !written && may_come_first(cell, bits, s) && !old_value)
    findings.add(s.finding(kMayComeFirst));
  if (writes && s.kind & kVolatile && !in_shared) cell.written |= (bits & ~cell.written) << kFirst;
  if (writes) cell.written |= bits;
  if (!(wanted & kRaces)) return;
  const auto conflicts = [&](const Event &e) {
    return e.set && !cannot_race(e, s, in_shared) && !order.before(e, s.t);
  };
  const auto report = [&](const Event &e) {
    Finding f = s.finding(kRace);
    f.b = side_of(e, *s.t.block);
    f.missing = order.missing(e, s.t);
    const std::uint64_t key = findings.add(f);
    if (writes && s.kind & kEngine && e.kind & kWrite && !in_shared)
      return findings.settle(key, stores_same);
    const bool two_writes = writes && e.kind & kWrite && !((s.kind | e.kind) & (kAtomic | kSent));
    if (!two_writes || s.bytes > 16) return findings.settle(key, false);
    unsettled = {key, s.address, s.bytes, {}};
    std::memcpy(unsettled.before, s.address, s.bytes);
  };
  if (conflicts(cell.write) || old_value) {
    report(cell.write);
  } else if (s.kind & kEngine && cell.write.set && !(cell.write.kind & kSent) &&
             !order.fenced(cell.write, s.t)) {
    Finding f = s.finding(kNoProxyFence);
    f.b = side_of(cell.write, *s.t.block);
    findings.add(f);
  }
  if (writes) {
    // atomics on one word are ordered: what follows the last of them follows all of them
    const Event &last = cell.write;
    const bool behind = last.set && last.kind & kAtomic && order.before(last, s.t);
    for (Event &e : cell.reads) {
      if (behind && e.kind & kAtomic) e.set = 0;
      const bool wrong = conflicts(e);
      if (wrong) report(e);
      if (wrong || (order.before(e, s.t) && !initializes(e, s))) e.set = 0;
    }
    // an atomic update beside others: a plain write that comes later must be ordered with all
    Event &old = cell.write;
    const bool beside = old.set && !order.before(old, s.t) && cannot_race(old, s, in_shared);
    if (beside || initializes(old, s)) cell.reads[cell.reads[0].set ? 1 : 0] = old;
    cell.write = now;
    return;
  }
  // Two readers that nothing orders are kept, of two warps if there are; the newest of a thread,
  // and of what asynchronous reads complete with.
  Event &a = cell.reads[0], &b = cell.reads[1];
  const auto older = [&](const Event &e) {
    return e.kind & now.kind & kSent && e.block == now.block;
  };
  if (a.set && older(a)) {
    a = now;
  } else if (b.set && older(b)) {
    b = now;
  } else if (!a.set || order.before(a, s.t)) {
    a = now;
  } else if (!b.set || order.before(b, s.t) ||
             (b.block == a.block && b.thread / 32 == a.thread / 32)) {
    b = now;
  }
}

void outside(const Seen &s) {
  findings.add(s.finding(kOutside));
  if (s.kind & kWrite) kw_fail("stopped before it writes to memory that is not its own");
}

// Of an asynchronous access, `sent` is what others see.
void in_shared(Seen &s, std::uint32_t place, std::uintptr_t at, const Event *sent = nullptr) {
  s.region = kShared;
  s.start = reinterpret_cast<std::uintptr_t>(s.address) - at;
  if (wanted & kBounds) {
    const Block &b = *s.owner;
    const auto dynamic = static_cast<std::uintptr_t>(b.dynamic - b.shared);
    if (at < dynamic) {
      const Region *r = find(variables, at);
      if (!r || at + s.bytes > r->end) return outside(s);
      if (r->written) return;  // the compiler's own
    } else if (at + s.bytes > dynamic + b.dynamic_bytes) {
      return outside(s);
    }
  }
  if (!(wanted & (kRaces | kInit))) return;
  const Event now = sent ? *sent : order.event(s.t, s.kind, place);
  Memory &memory = memories[s.owner->rank];
  memory.cells->each(at, s.bytes, [&](Cell &cell, unsigned bits) {
    look_at_cell(cell, bits, s, now, memory.turn, false, true);
  });
}

// A volatile or atomic access to global memory.
void look_at_sight(const Seen &s, const Event &now) {
  if (!(s.kind & kWrite) || s.kind & kAtomic) volatile_order.read(s.t, s.address, s.kind & kAtomic);
  if (s.kind & kWrite && volatile_order.write(s.address, now)) order.advance(s.t);
}

void in_global(Seen &s, std::uint32_t place, const Event *sent = nullptr) {
  const auto at = reinterpret_cast<std::uintptr_t>(s.address);
  const Region *r = places[place].region;
  if (!r || at < r->start || at >= r->end) places[place].region = r = find(regions, at);
  if (!r || at + s.bytes > r->end) {
    if (!(wanted & kBounds) || (!r && in_library(s.address, s.where))) return;
    if (!r && in_device_heap(at)) return;
    if (!r) {  // which argument ends or starts nearest?
      s.region = kNowhere;
      std::uintptr_t nearest = 64 * 1024;
      const auto shared = reinterpret_cast<std::uintptr_t>(shared_end);
      if (at >= shared && at - shared < nearest)
        nearest = at - shared, s.region = kShared,
        s.start = reinterpret_cast<std::uintptr_t>(shared_start);
      for (const Region &near : regions) {
        const std::uintptr_t away = at < near.start ? near.start - at : at - near.end;
        if (away < nearest) nearest = away, s.region = near.number, s.start = near.start;
      }
    } else {
      s.region = r->number, s.start = r->start;
    }
    return outside(s);
  }
  s.region = r->number, s.start = r->start;
  if (wanted & kBounds && between_elements(*r, at, s.bytes)) outside(s);
  if (!(wanted & (kRaces | kInit))) return;
  const bool reads = !(s.kind & kWrite) || s.kind & kAtomic;
  if (wanted & kInit && r->written && reads && kw_holds_pattern(s.address, s.bytes))
    findings.add(s.finding(kNeverWritten));
  const Event now = sent ? *sent : order.event(s.t, s.kind, place);
  r->cells->each(at, s.bytes, [&](Cell &cell, unsigned bits) {
    look_at_cell(cell, bits, s, now, launch_turn, r->written, false);
  });
  if (wanted & kRaces && s.kind & (kVolatile | kAtomic)) look_at_sight(s, now);
}

void look_at_copies(Seen &s) {
  const Pending *p = wanted & kRaces ? find(pending, s.t.block, s.address, s.bytes) : nullptr;
  if (!p) return;
  if (s.address >= shared_start && s.address < shared_end)
    s.region = kShared, s.start = reinterpret_cast<std::uintptr_t>(shared_start);
  Finding f = s.finding(kNotWaited);
  f.b = p->by;
  findings.add(f);
}

// 16 bytes at once at a variable in shared memory, or at a whole number of them behind its start:
// the compiler copies a struct of 8-byte members like that.
bool is_of_a_struct(const void *address, unsigned bytes) {
  const auto *at = static_cast<const unsigned char *>(address);
  if (bytes != 16 || at < shared_start || at >= shared_end) return false;
  const auto offset = static_cast<std::uintptr_t>(at - shared_start);
  const Region *r = find(variables, offset);
  return r && (offset - r->start) % 16 == 0 && reinterpret_cast<std::uintptr_t>(at) % 8 == 0;
}

void access(Thread &t, const void *address, unsigned bytes, unsigned kind, const void *where) {
  unsettled.settle(findings);
  Seen s = {t, address, where, bytes, kind & 7, kNowhere, 0, t.block};
  if (!pending.empty()) look_at_copies(s);
  const std::uint32_t place = place_of(where);
  if (wanted & kRaces && kind & (kVolatile | kAtomic)) order.word(t, address, kind);
  const auto *byte = static_cast<const unsigned char *>(address);
  unsigned long long offset = 0;
  if (byte >= shared_start && byte < shared_end) {
    in_shared(s, place, static_cast<std::uintptr_t>(byte - shared_start));
  } else if (const Block *other = t.block->cluster > 1 ? kw_shared_of(address, &offset) : nullptr) {
    s.owner = other;
    in_shared(s, place, offset);
    if (wanted & kBounds)
      mbarriers.look(t, s.finding(kMayHaveEnded), order.event(t, kind & 7, place));
  } else {
    in_global(s, place);
  }
  if (wanted & kBounds && !(kind & kUnaligned) && (bytes & (bytes - 1)) == 0 &&
      reinterpret_cast<std::uintptr_t>(address) % bytes && !is_of_a_struct(address, bytes))
    findings.add(s.finding(kMisaligned));
}

// Of the 8 bytes of an mbarrier, or of what is sent.
Finding finding_of(const Thread &t, const Across &a, std::uint32_t what, unsigned at,
                   unsigned bytes, unsigned kind) {
  return {
      what, kShared, bytes, 0, launch_turn, number_of(*a.block), 0, at, side_of(t, a.where, kind),
      {},   0};
}

}  // namespace
}  // namespace kw::emulator
#include "async_checks.h"
namespace kw::emulator {
namespace {

// ---- synchronization

void launch_begin(const Launch &) {
  engines.launch();
  pending.clear();
  ++launch_turn;
  order.launch();
  volatile_order.launch();
}

void block_begin(Block &b) {
  arrivals.clear();
  engines.block(b);
  order.block(b, number_of(b));
  volatile_order.block(b);
  mbarriers.block(b);
  Memory &memory = memories[b.rank];
  memory.turn = ++turns;
  const std::size_t size = b.shared ? b.shared_bytes + b.dynamic_bytes : 0;
  if (b.shared != shared_start || b.shared + size != shared_end)
    for (Memory &m : memories) m.cells.reset();
  if (size && !memory.cells) memory.cells = std::make_unique<Shadow>(0, size);
  shared_start = b.shared;
  shared_end = b.shared + size;
  if (size) std::memset(b.shared, fill, size);
}

void thread_begin(Thread &t) { order.begin(t), engines.begin(t); }

// An asynchronous copy: what it writes is written when it ends.
void copy(Thread &t, void *to, unsigned bytes, bool ended, const void *where) {
  if (!ended) {
    pending.push_back(
        {static_cast<const unsigned char *>(to), bytes, side_of(t, where, kWrite), &t});
    return;
  }
  end(pending, t, to, bytes);
  access(t, to, bytes, kWrite, where);
}

// ---- across the blocks of a cluster

void send(Thread &t, const Across &a, Mailbox *box) {
  if (wanted & kBounds && !order_starts(order, t, *a.block, number_of(*a.block)))
    findings.add(finding_of(t, a, kNotStarted, a.to, a.bytes, kWrite | kSent));
  if (!box) return;
  const std::uint32_t place = place_of(a.where);
  const Event sent = box->send(t, a.phase, number_of(*t.block), place);
  if (wanted & kBounds)
    box->sent(a.phase, finding_of(t, a, kMayHaveEnded, a.to, a.bytes, kWrite | kSent));
  Seen s = {t, shared_start + a.to, a.where, a.bytes, kWrite | kSent, kShared, 0, a.block};
  in_shared(s, place, a.to, &sent);
}

void across(Thread &t, const Across &a) {
  if (a.what != kSend) note_sync_point(a.where);
  if (a.what == kArrive || a.what == kArriveRelaxed || a.what == kPass) {
    if (a.what == kPass)
      order.pass(t);
    else
      order.arrive(t, a.what == kArriveRelaxed), mbarriers.arrive(t);
    const Alike other = mbarriers.alike(t, a);
    if (wanted & kDivergence && other.where != a.where)
      findings.add({kTwoBarriers, kNowhere, 0, 0, launch_turn, 0, 0, 0, side_of(t, a.where, 0),
                    side_of(t.block->threads[other.thread], other.where, 0), 0});
    return;
  }
  if (a.what == kPublish) return mbarriers.fence(t);
  if (a.what == kInitialise) return mbarriers.init(a, order.event(t, kWrite, place_of(a.where)));
  Mailbox *box = mbarriers.find(*a.block, a.mbarrier);
  if (box && wanted & kRaces && !box->ready(order, t)) {
    Finding f =
        finding_of(t, a, kNotReady, a.mbarrier, 8, a.what == kSend ? kWrite | kSent : kRead);
    f.b = side_of(box->init(), *t.block);
    findings.add(f);
  }
  if (a.what == kSend) send(t, a, box);
  if (a.what == kExpect && a.block != t.block && wanted & kBounds) {
    if (!order_starts(order, t, *a.block, number_of(*a.block)))
      findings.add(finding_of(t, a, kNotStarted, a.mbarrier, 8, kWrite | kAtomic));
    const Event now = order.event(t, kWrite | kAtomic, place_of(a.where));
    mbarriers.look(t, finding_of(t, a, kMayHaveEnded, a.mbarrier, 8, kWrite | kAtomic), now, true);
  }
  if (a.what == kReceive) return order.learn(t, box->come());
  if (box) box->bring(order.release(t), a.phase, a.ends);
}

void thread_exit(Thread &t) {
  exit_engines(t);
  unsettled.settle(findings), mbarriers.exit(t, order.known(t));
}

void block_end(Block &b) {
  mbarriers.each_unknown(b, order, [](const Finding &f) { findings.add(f); });
  mbarriers.each_unheard(b, [](const Finding &f) { findings.add(f); });
}

const Observer observer = {launch_begin, nullptr, block_begin, block_end, thread_begin, thread_exit,
                           barrier,      warp,    access,      fence,     nullptr,      across,
                           copy,         named,   unset,       index,     engine,       own};

}  // namespace
}  // namespace kw::emulator

using namespace kw::emulator;

#pragma GCC visibility push(default)
extern "C" {
const Observer *kw_checks_observer() { return &observer; }

// A call begins: none of its memory has been touched.
void kw_checks_begin(unsigned checks, unsigned char unwritten) {
  wanted = checks, fill = unwritten;
  launch_turn = turns = 0;
  pending.clear(), unsettled = {};
  findings.clear();
  sync_points.clear();
  shadows.clear();
  regions.clear();
  for (Memory &m : memories) m = {};
  shared_start = shared_end = nullptr;
  places.clear(), place_table.clear();
}

// A launch begins: it may touch these, by address, and these variables of shared memory, by offset.
void kw_checks_launch(const Region *given, std::size_t count, const Region *shared,
                      std::size_t shared_count) {
  regions.assign(given, given + count);
  for (Region &r : regions) {
    auto &cells = shadows[{r.start, r.end}];
    if (!cells) cells = std::make_unique<Shadow>(r.start, r.end);
    r.cells = cells.get();
  }
  variables.assign(shared, shared + shared_count);
  for (Place &p : places) p.region = nullptr;
}

// The caller has written this memory.
void kw_checks_wrote(const void *p, std::size_t bytes) {
  const auto at = reinterpret_cast<std::uintptr_t>(p);
  for (auto &[span, cells] : shadows)
    if (at >= span.first && at + bytes <= span.second)
      for (std::size_t i = 0; i < bytes;) {
        const unsigned n =
            static_cast<unsigned>(std::min<std::size_t>(bytes - i, 4 - (at + i) % 4));
        cells->each(at + i, n, [](Cell &cell, unsigned bits) { cell.written |= bits; });
        i += n;
      }
}
// The caller has freed this memory.
void kw_checks_freed(const void *p) {
  const auto at = reinterpret_cast<std::uintptr_t>(p);
  for (auto it = shadows.begin(); it != shadows.end();)
    it = it->first.first == at ? shadows.erase(it) : std::next(it);
}

const Finding *kw_checks_findings(std::size_t *count) {
  *count = findings.all().size();
  return findings.all().data();
}

// Where threads of the call synchronized at barriers, and where they fenced.
const std::uint64_t *kw_checks_sync_points(std::size_t *count) {
  *count = sync_points.size();
  return sync_points.data();
}
}
#pragma GCC visibility pop
