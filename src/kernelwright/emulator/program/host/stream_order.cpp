// The order of work in streams as CUDA defines it, and accesses of works that it does not order.
//
// Each stream has a vector of clocks, and so has the host. Work is behind what its stream has done,
// what the stream has waited for, and what the host had waited for when it issued the work. The
// default stream waits for all others and they for it, if they are not created as non-blocking.
// Functions without a stream, allocations among them, are taken as waiting for everything, so that
// a finding is one on every GPU.
#include <sys/mman.h>

#include <algorithm>
#include <deque>
#include <set>

#include "streams.h"

namespace kw::program {
namespace {

struct Work {
  unsigned stream, number;
  Clock before;
  std::string what;
};
struct State {
  Clock clock;
  bool blocking;
};

std::recursive_mutex lock;
std::deque<State> states = {{{}, true}};  // by number; 0 is the default stream
Clock host;
std::deque<Work> works(1);          // from 1
thread_local unsigned current = 0;  // the work of this thread of the host
unsigned doing = 0;                 // the work whose accesses are seen
bool watching = false;

void join(Clock &to, const Clock &from) {
  if (to.size() < from.size()) to.resize(from.size());
  for (size_t i = 0; i < from.size(); ++i) to[i] = std::max(to[i], from[i]);
}

unsigned number_of(cudaStream_t s) { return is_own(s) ? s->number : 0; }

// The default stream also waits for all that are not non-blocking.
Clock known_to(unsigned stream) {
  Clock all = states[stream].clock;
  if (!stream) {
    for (const State &s : states)
      if (s.blocking) join(all, s.clock);
  } else if (states[stream].blocking) {
    join(all, states[0].clock);
  }
  return all;
}

// ---- accesses: for each 4 bytes, the last write and one read that nothing follows

constexpr unsigned kAtomicWork = 1u << 31;
struct Word {
  unsigned wrote, read;  // works; a write may be atomic
  const void *wrote_at, *read_at;
  unsigned char wrote_bytes, read_bytes;
};
struct Watched {
  std::uintptr_t start, end;
  const void *allocated;
  Word *words;
};
std::map<std::uintptr_t, Watched> watched;
const Watched *last = nullptr;

const Watched *watched_at(std::uintptr_t at) {
  if (last && at >= last->start && at < last->end) return last;
  const Allocation *a = holding(reinterpret_cast<const void *>(at));
  if (!a) return nullptr;
  const auto start = reinterpret_cast<std::uintptr_t>(a->at);
  auto [place, fresh] = watched.try_emplace(start);
  Watched &w = place->second;
  const size_t bytes = (a->bytes / 4 + 2) * sizeof(Word);
  if (!fresh && w.allocated != a->where && w.words) munmap(w.words, bytes), fresh = true;
  if (fresh) {
    void *mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    w = {start, start + a->bytes, a->where,
         mapped == MAP_FAILED ? nullptr : static_cast<Word *>(mapped)};
  }
  return last = &w;
}

bool ordered(unsigned earlier) {
  static thread_local unsigned of = 0, known = 0;
  earlier &= ~kAtomicWork;
  if (earlier == doing || (of == doing && known == earlier)) return true;
  const Work &e = works[earlier];
  const Clock &before = works[doing].before;
  if (e.stream >= before.size() || before[e.stream] < e.number) return false;
  of = doing, known = earlier;
  return true;
}

void report(const Watched &w, unsigned earlier, const void *then, const char *did, unsigned kind,
            const void *where) {
  static std::set<std::pair<const void *, const void *>> said;
  if (!said.emplace(where, then).second) return;
  const char *does = kind & emulator::kWrite ? "writes" : "reads";
  note("streams", line_of(nullptr, 0, where) + ": " + works[doing].what + " " + does +
                      " memory (allocated at " + line_of(nullptr, 0, w.allocated) + ") that " +
                      works[earlier & ~kAtomicWork].what + " in another stream " + did + " at " +
                      line_of(nullptr, 0, then) +
                      ": no event and no synchronization orders the two");
}

}  // namespace

Issued::Issued(cudaStream_t stream) : before_(current) {
  std::lock_guard<std::recursive_mutex> hold(lock);
  const unsigned n = number_of(stream);
  Clock its = known_to(n);
  join(its, host);
  if (its.size() <= n) its.resize(n + 1);
  Work work = {n, ++its[n], its, ""};
  states[n].clock = std::move(its);
  if (!watching) {
    current = 1;
    return;
  }
  current = static_cast<unsigned>(works.size());
  works.push_back(std::move(work));
}
Issued::~Issued() { current = before_; }
Synchronous::Synchronous() : own_(!current) {
  if (own_) work_ = std::make_unique<Issued>(nullptr);
}
Synchronous::~Synchronous() {
  work_.reset();
  if (own_) host_waits(cudaStream_t{});
}
void host_waits_for_current() {
  std::lock_guard<std::recursive_mutex> hold(lock);
  if (watching && current) join(host, works[current].before);
}

unsigned new_stream(unsigned flags) {
  std::lock_guard<std::recursive_mutex> hold(lock);
  states.push_back({{}, !(flags & cudaStreamNonBlocking)});
  return static_cast<unsigned>(states.size() - 1);
}
void record(CUevent_st &event, cudaStream_t stream) {
  std::lock_guard<std::recursive_mutex> hold(lock);
  event.clock = known_to(number_of(stream));
  join(event.clock, host);
}
void wait_for(cudaStream_t stream, const CUevent_st &event) {
  std::lock_guard<std::recursive_mutex> hold(lock);
  join(states[number_of(stream)].clock, event.clock);
}
void host_waits(cudaStream_t stream) {
  std::lock_guard<std::recursive_mutex> hold(lock);
  join(host, known_to(number_of(stream)));
}
void host_waits(const CUevent_st &event) {
  std::lock_guard<std::recursive_mutex> hold(lock);
  join(host, event.clock);
}
void host_waits_for_all() {
  std::lock_guard<std::recursive_mutex> hold(lock);
  for (const State &s : states) join(host, s.clock);
}

void watch_streams() { watching = true; }
bool watches_streams() { return watching && kept_apart_from_libraries(); }
void streams_see(const Job &job) {
  doing = current;
  const Config &c = job.config;
  if (doing)
    works[doing].what = job.name + std::string(", launched at ") + line_of(c.file, c.line, c.where);
}
void streams_see(const char *function, const void *) {
  doing = current;
  if (doing && works[doing].what.empty()) works[doing].what = function;
}
void streams_see(const void *p, size_t bytes, unsigned kind, const void *where) {
  if (!doing) return;
  auto at = reinterpret_cast<std::uintptr_t>(p);
  const Watched *w = watched_at(at);
  if (!w || !w->words) return;
  const std::uintptr_t end = std::min(at + bytes, w->end);
  const bool writes = kind & emulator::kWrite, atomic = kind & emulator::kAtomic;
  while (at < end) {
    const std::uintptr_t next = std::min(end, at / 4 * 4 + 4);
    const auto mask = static_cast<unsigned char>(((1u << (next - at)) - 1) << at % 4);
    Word &word = w->words[at / 4 - w->start / 4];
    const bool both_atomic = atomic && word.wrote & kAtomicWork;
    if (word.wrote && word.wrote_bytes & mask && !both_atomic && !ordered(word.wrote))
      report(*w, word.wrote, word.wrote_at, "has written", kind, where);
    if (writes && word.read && word.read_bytes & mask && !ordered(word.read))
      report(*w, word.read, word.read_at, "has read", kind, where);
    if (writes) {
      const unsigned now = doing | (atomic ? kAtomicWork : 0);
      word.wrote_bytes = word.wrote == now ? word.wrote_bytes | mask : mask;
      word.wrote = now, word.wrote_at = where;
    } else if (!word.read || word.read == doing || ordered(word.read)) {
      word.read_bytes = word.read == doing ? word.read_bytes | mask : mask;
      word.read = doing, word.read_at = where;
    }
    at = next;
  }
}

}  // namespace kw::program
