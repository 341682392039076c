// Streams, events, and the order in which they say that work happens. Work is done when it is
// issued, one after the other, whatever this order is.
#pragma once
#include "host.h"

namespace kw::program {
// By the number of a stream: how much of its work has ended before.
using Clock = std::vector<unsigned>;
}  // namespace kw::program

struct CUstream_st {
  unsigned number;     // of its clock
  unsigned flags = 0;  // cudaStreamNonBlocking
  int priority = 0;
  // The graph that it records, and the nodes that its next node depends on.
  cudaGraph_t recording = nullptr;
  std::vector<cudaGraphNode_t> last;
};
struct CUevent_st {
  double at = -1;  // seconds
  kw::program::Clock clock;
  // Recorded by a stream that records a graph: after these nodes of it.
  cudaGraph_t graph = nullptr;
  std::vector<cudaGraphNode_t> last;
};

namespace kw::program {

// Whether a handle is that of a stream that the program has created.
inline bool is_own(cudaStream_t s) { return reinterpret_cast<std::uintptr_t>(s) > 4; }
// cudaStreamTailLaunch, in which a kernel launches what runs behind all of its other launches.
inline cudaStream_t tail_launch() { return reinterpret_cast<cudaStream_t>(3); }

// Issues work in a stream; while it exists, what is launched and copied belongs to this work.
class Issued {
 public:
  explicit Issued(cudaStream_t);
  ~Issued();

 private:
  unsigned before_;
};
// Work of a function without a stream: of the default stream, for which the host waits; nothing if
// the function is called within other work.
class Synchronous {
 public:
  Synchronous();
  ~Synchronous();

 private:
  bool own_;
  std::unique_ptr<Issued> work_;
};
// The host waits for the work that is being done.
void host_waits_for_current();

unsigned new_stream(unsigned flags);
void record(CUevent_st &, cudaStream_t);
void wait_for(cudaStream_t, const CUevent_st &);
// The host waits.
void host_waits(cudaStream_t);
void host_waits(const CUevent_st &);
void host_waits_for_all();

// From now on, reports memory that works of two streams access in no order.
void watch_streams();
bool watches_streams();
// The next accesses are those of a launch, at a line.
void streams_see(const Job &);
// An access by a kernel, or by a copy at a line of the program. `kind`: bits of emulator::Access.
void streams_see(const void *p, size_t bytes, unsigned kind, const void *where);
// A copy or a fill of memory.
void streams_see(const char *function, const void *where);

}  // namespace kw::program
