// What a rung's code, the runtime and observers know of each other.
//
// A block runs on one OS thread, each of its CUDA threads as a fiber with a stack of its own; so do
// all blocks of a cluster, on the same one. A fiber runs until it has to wait for others (a
// barrier, a shuffle) and then hands over directly to the next one that may run.
#pragma once
#include <cstdint>

#include "warp_operations.h"

namespace kw::emulator {

// Of each CUDA thread's stack; `Thread::stack` is its lowest address.
constexpr unsigned long kStack = 256 * 1024;
constexpr unsigned kMostBlocks = 2048;  // that run together: a cluster, or a cooperative grid

struct Index {
  unsigned x, y, z;
};

struct Block;

// One CUDA thread.
struct Thread {
  void *stack_pointer;  // where it was left; null before its first instruction
  Index index;          // threadIdx
  unsigned number;      // x + y * blockDim.x + z * blockDim.x * blockDim.y
  Block *block;
  unsigned epoch;       // block barriers that it has passed
  unsigned warp_epoch;  // warp operations that it has passed
  unsigned arrivals;    // at the cluster's barrier
  unsigned phase;       // of that barrier: how often it has passed it
  Wait wait;
  unsigned mask;          // lanes that a warp operation names
  unsigned source;        // lane that a shuffle reads; parity that a wait for an mbarrier names
  const void *where;      // the instruction that waits
  const void *call;       // the call in the source by which it waits, if that is known
  std::uint64_t in, out;  // what it brings to an operation, and gets
  void *stack;            // lowest address
  void *data;             // the observer's own
  void (*act)(void *const *data);  // of a warp's instruction
  struct Async *async;             // copies that it has begun and not waited for; or null
  const void *statement;  // the asm statement that it executes, in a whole program; or null

  unsigned warp() const { return number / 32; }
  unsigned lane() const { return number % 32; }
};

// A block that an OS thread runs now. Blocks of a cluster have the same addresses of shared memory,
// as on a GPU; what it holds changes with the thread that runs.
struct Block {
  Index index, size, grid;  // blockIdx, blockDim, gridDim
  unsigned rank, cluster;   // its place in its cluster; how many blocks that has
  Thread *threads;
  unsigned count;                    // of its threads
  unsigned char *shared;             // its __shared__ variables
  unsigned long long shared_bytes;   // without extern ones
  unsigned char *dynamic;            // where extern ones start
  unsigned long long dynamic_bytes;  // that the launch has there, if the source has extern ones
  unsigned worker;                   // number of the OS thread, from 0
  const struct Launch *launch;
  void *data;  // the observer's own
};

// Kinds of memory access that an observer sees; bits. kUnaligned: the code does not count on an
// address that is a multiple of the size (a memcpy).
enum Access : unsigned { kRead = 0, kWrite = 1, kVolatile = 2, kAtomic = 4, kUnaligned = 8 };
enum Scope : unsigned { kBlockScope, kDeviceScope, kSystemScope };

// What a thread does to a cluster's barrier, or to an mbarrier and the memory of a block.
enum Crossing : unsigned {
  kArrive,         // at the cluster's barrier, releasing what it did
  kArriveRelaxed,  // releasing what it fenced
  kPass,           // the cluster's barrier, after its wait
  kInitialise,     // an mbarrier
  kPublish,        // fence.mbarrier_init
  kExpect,         // arrives at an mbarrier, which waits for bytes
  kSend,           // st.async
  kReceive,        // an mbarrier's phase has ended, after the wait for it
};

struct Across {
  Crossing what;
  const void *where;
  Block *block;       // whose mbarrier it is
  unsigned mbarrier;  // its place in that block's shared memory
  unsigned to;        // where a send writes in that memory
  unsigned bytes;     // of a send
  unsigned phase;     // of the mbarrier, counted from 0
  bool ends;          // the mbarrier's phase, with this
};

// Formats of a tensor core's operands.
enum Format : unsigned char { kHalf, kBfloat, kTf32, kE4m3, kE5m2, kInt8, kUint8, kFloat, kInt32 };

// wgmma.mma_async, as each thread of a warp group issues it. D is 64 x n, A 64 x k, B k x n.
struct Product {
  unsigned n, k;
  Format d, a, b;
  bool from_registers;        // A is in `registers`, else at the descriptor `at_a`
  bool a_k_major, b_k_major;  // the operands in shared memory have k contiguous
  bool adds;                  // D += A B, else D = A B
  bool negates_a, negates_b, saturates;
  unsigned registers[4];
  std::uint64_t at_a, at_b;
};
constexpr unsigned kWarpGroup = 128;  // threads that issue a product together

// A tensor map: what the runtime keeps in the 128 bytes of a CUtensorMap.
struct alignas(64) TensorMap {
  std::uint64_t mark, address;
  std::uint64_t strides[4];  // bytes from one element to the next, of dimensions 1 to 4
  std::uint32_t last[5];     // elements of each dimension, less 1
  std::uint16_t box[5];      // elements that a copy moves
  std::uint8_t steps[5];     // element strides
  std::uint8_t dimensions, bytes, swizzle;  // swizzle in bytes
  std::uint8_t type;                        // as CUtensorMapDataType counts
  bool nan;                                 // outside of the tensor is no number, instead of 0
  std::uint8_t reserved[40];
};
static_assert(sizeof(TensorMap) == 128);
constexpr std::uint64_t kTensorMap = 0x70616d20726f736eu;

// What a store does with the elements in memory.
enum Reduction : unsigned char { kReplace, kAdd, kMin, kMax, kInc, kDec, kAnd, kOr, kXor };

// A copy by the tensor memory accelerator. `block`: whose shared memory it fills or, of a store,
// reads, at `at`; `from`: the source in its thread's own block, of a send. `first`: of a box.
struct Bulk {
  enum Kind { kLoad, kSend, kStore, kBoxLoad, kBoxStore } kind;
  Thread *thread;
  const void *where;
  Block *block;
  unsigned at, from, bytes;
  void *global;
  TensorMap map;
  int first[5];
  unsigned mbarrier, phase;  // that counts its bytes; its phase when the copy began
  unsigned group;            // of a store
  Reduction reduction;
  unsigned type;  // of the elements that it combines

  bool stores() const { return kind == kStore || kind == kBoxStore; }
};

// A step of the asynchronous instructions of a thread.
struct Engine {
  enum What {
    kProxyFence,  // fence.proxy.async
    kCopyBegins,
    kCopyEnds,  // and `ends` the mbarrier's phase `number`
    kStoresCommitted,
    kStoresEnded,    // those of groups before `number`; `reads`: only their reads
    kProductFence,   // wgmma.fence
    kProductIssued,  // product `number` of its warp group
    kProductsEnded,  // those before `number`
  } what;
  const void *where;
  const Bulk *copy;
  unsigned number;
  bool ends, reads;
  const Product *product;
  void *const *registers;  // of its D
};

enum Named : unsigned { kArrives, kPasses, kCompletes };

struct Launch;

// Looks on while a kernel runs. Every member may be null. Calls come from the OS thread of the
// block; blocks of several OS threads call at once unless the launch has one worker. `access` is
// called before the access, and only by watched builds.
struct Observer {
  void (*launch_begin)(const Launch &);
  void (*launch_end)(const Launch &);
  void (*block_begin)(Block &);
  void (*block_end)(Block &);
  void (*thread_begin)(Thread &);
  void (*thread_exit)(Thread &);
  // All live threads of the block have arrived; each still has `wait`, `where` and `epoch`.
  void (*barrier)(Block &);
  // The lanes have arrived at one warp operation, `first` among them: see its `wait` and `mask`.
  void (*warp)(Thread &first, unsigned lanes);
  void (*access)(Thread &, const void *address, unsigned bytes, unsigned kind, const void *where);
  void (*fence)(Thread &, unsigned scope, const void *where);
  // The thread enters a basic block of its code; only dissected builds tell.
  void (*path)(Thread &, const void *where);
  // A step across the blocks of a cluster, before it is done.
  void (*across)(Thread &, const Across &);
  // An asynchronous copy begins (its source is read then), or it has ended.
  void (*copy)(Thread &, void *to, unsigned bytes, bool ended, const void *where);
  // The thread arrives at a numbered barrier; all have, and it goes on; all of them do.
  void (*named)(Thread &, unsigned which, Named what, const void *where);
  // A read of a variable that has no value; an index outside of an array.
  void (*unset)(Thread &, const char *name, unsigned bytes, const void *where);
  void (*index)(Thread &, std::uint64_t index, std::uint64_t size, const void *where);
  // A step of asynchronous instructions, when it is done.
  void (*engine)(Thread &, const Engine &);
  // As `access`, of the thread's own variables, once it has used wgmma.
  void (*own)(Thread &, const void *address, unsigned bytes, unsigned kind, const void *where);
};

// The shared memory of a kernel's library: thread-local variables, since a block has an OS thread
// for itself. Static ones first; what is declared extern __shared__ starts at `dynamic`.
struct Library {
  unsigned long long module, bytes, dynamic;
};

struct Launch {
  void (*entry)(void *const *arguments);
  void *const *arguments;
  Library library;
  Index grid, block;
  unsigned long long shared;      // bytes of dynamic shared memory
  unsigned long long seed;        // of the order of a block's threads; 0: by their numbers
  unsigned long long block_seed;  // of the order of blocks; 0: by their numbers
  double patience;                // seconds without progress until it is given up; 0: for ever
  unsigned workers;               // OS threads, at most
  unsigned cluster;               // blocks along x that run together; 1 for none
  const Observer *observer;       // or null
};

// A block whose threads are run by loops in its kernel's code.
struct InLoops {
  Thread *threads;
  Thread *none;  // the present thread where the code does not say which one it is
  volatile unsigned long long *progress;
};

}  // namespace kw::emulator

#pragma GCC visibility push(default)
extern "C" {
// The thread that runs. One pointer in static TLS: reading it costs one instruction.
extern __thread kw::emulator::Thread *kw_current __attribute__((tls_model("initial-exec")));

// Its threadIdx, blockIdx, blockDim and gridDim, for whole programs.
#define KW_INDEX(name) \
  extern __thread kw::emulator::Index name __attribute__((tls_model("initial-exec")));
KW_INDEX(kw_threadIdx)
KW_INDEX(kw_blockIdx)
KW_INDEX(kw_blockDim)
KW_INDEX(kw_gridDim)
#undef KW_INDEX

// Fills a Library from an address inside it and the distance of its `dynamic` variables (0 for
// none) from an address in the calling thread. False where the library has no shared memory.
bool kw_library(const void *inside, const void *dynamic, kw::emulator::Library *);
// Runs a kernel to its end. Null, or what went wrong; instructions appear as "@0x7f...@".
const char *kw_launch(const kw::emulator::Launch *);

// A kernel that can run its block's threads in loops asks first: null means that each thread is to
// execute it. Else the whole block has ended when the kernel returns.
const kw::emulator::InLoops *kw_block_in_loops();
// Memory of a block in loops, given back in reverse order.
__attribute__((malloc)) void *kw_thread_values(unsigned long long bytes);
void kw_thread_values_free(unsigned long long bytes);
// Blocks that have run in loops, of all launches.
unsigned long long kw_blocks_in_loops();
// Blocks that have begun, of all launches of the process.
unsigned long long kw_blocks_begun();

// Operations of the whole block, and of lanes of a warp. `value`, `source`: what the thread brings.
// Lanes meet where they stand in the source: two calls stay two.
#ifdef __clang__
#define KW_STAYS_APART __attribute__((nomerge))
#else
#define KW_STAYS_APART
#endif
// `call` identifies the call in the source: the compiler may make one instruction of two calls, and
// several of one.
KW_STAYS_APART std::uint64_t kw_block_wait(kw::emulator::Wait, std::uint64_t value,
                                           const void *call);
KW_STAYS_APART std::uint64_t kw_warp_wait(kw::emulator::Wait, unsigned mask, std::uint64_t value,
                                          unsigned source);
// Clusters. Addresses in shared memory are those of the PTX instructions: the distance from the
// start of the block's own, and by kw_mapa that of the same variable in block `rank`.
unsigned kw_cluster_rank();
unsigned kw_shared_address(const void *);
// An address in shared memory whose instruction was given the low bits of a generic address
// instead: on a GPU, where the generic addresses of shared memory begin at a multiple of 2^32, the
// same.
unsigned kw_shared_of_low(unsigned);
unsigned kw_mapa(unsigned address, unsigned rank);
void kw_cluster_arrive(bool relaxed);
void kw_cluster_wait();
void kw_mbarrier_init(unsigned address, unsigned count);
void kw_mbarrier_init_fence();
unsigned long long kw_mbarrier_expect(unsigned address, unsigned bytes);
void kw_mbarrier_wait(unsigned address, unsigned parity);
void kw_send(unsigned to, std::uint64_t value, unsigned bytes, unsigned mbarrier);
// The state that an arrival returns: the number of the phase, and above it the missing arrivals.
unsigned long long kw_mbarrier_arrive(unsigned address, unsigned count);
unsigned long long kw_mbarrier_drop(unsigned address);  // for all later phases
bool kw_mbarrier_test(unsigned address, unsigned parity);
void kw_mbarrier_bytes(unsigned address, long long bytes);  // expected; negative: arrived
void kw_mbarrier_end(unsigned address);
void kw_fence_proxy_async();
// Bulk copies and copies of boxes of tensors. `at`: the box's first element, one per dimension.
void kw_bulk_load(unsigned to, const void *from, unsigned bytes, unsigned mbarrier);
void kw_bulk_send(unsigned to, unsigned from, unsigned bytes, unsigned mbarrier);
void kw_bulk_store(void *to, unsigned from, unsigned bytes,
                   kw::emulator::Reduction = kw::emulator::kReplace, unsigned type = 0);
void kw_box_load(unsigned to, const void *map, const int *at, unsigned dimensions,
                 unsigned mbarrier, unsigned blocks);
void kw_box_store(const void *map, unsigned from, const int *at, unsigned dimensions,
                  kw::emulator::Reduction = kw::emulator::kReplace);
void kw_box_prefetch(const void *map);
void kw_bulk_commit();
void kw_bulk_wait(unsigned groups, bool reads);  // `reads`: only their reads
// Products of a warp group. `d`: where the thread keeps each of its registers of D.
void kw_product(const kw::emulator::Product *, void *const *d);
void kw_product_fence();
void kw_product_commit();
void kw_product_wait(unsigned groups);
void kw_registers(unsigned count);  // setmaxnreg
// For a debugger: the present block's barriers; 16 rows and 8 columns of D of the latest product.
const char *kw_show_barriers();
const char *kw_show_tile(unsigned row, unsigned column);
// ldmatrix and stmatrix: `row` is the address of the row that the lane selects.
void kw_matrices(unsigned row, unsigned *registers, unsigned count, bool transposed, bool stores);
// Asynchronous copies of up to 16 bytes: `bytes` are written, of which those past `read` are zero.
// They are done when the thread waits, or ends: the latest moment that a GPU may choose.
// `where`: the instruction, if it is not the caller.
void kw_async_copy(void *to, const void *from, unsigned bytes, unsigned read,
                   const void *where = nullptr);
void kw_async_commit();
void kw_async_wait(unsigned groups);
// bar.sync and bar.arrive with a number and a count of threads.
void kw_named_barrier(unsigned which, unsigned count, bool waits);
// A variable in the shared memory of another block of the cluster.
void *kw_map_shared(void *, unsigned rank);
// All lanes of a warp meet at the instruction `where`; then act(data of each lane) is called once.
void kw_together(void *data, void (*act)(void *const *data), const void *where);
// An access by code that is not instrumented.
void kw_access(const void *, unsigned bytes, unsigned kind, const void *where);
// Memory that nothing has written, whose writes are not all seen: it holds a pattern.
void kw_fill_pattern(void *, unsigned long long bytes);
bool kw_holds_pattern(const void *, unsigned bytes);
// A variable of a kernel is declared without a value.
void kw_unset(void *, unsigned long long bytes, const char *name);
// An array of known size is indexed outside of it.
void kw_index_outside(std::uint64_t index, unsigned long long size, const void *where);
// The names of variables that findings speak of, by their addresses as text.
const char *const *kw_unset_names(unsigned long long *count);
// The block whose shared memory another block of its cluster sees at an address, or null.
const kw::emulator::Block *kw_shared_of(const void *, unsigned long long *offset);
// Let other threads of the block go on.
void kw_yield();
// End the launch with a message.
[[noreturn]] void kw_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
// The same, at an instruction of the kernel that the caller names.
[[noreturn]] void kw_fail_at(const void *where, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
int kw_printf(const char *format, ...) __attribute__((format(printf, 1, 2)));
void kw_fence(unsigned scope);
// For builds whose every access is seen: what the compiler would else instrument itself.
kw::emulator::Index kw_index(unsigned which);  // threadIdx, blockIdx, blockDim, gridDim
void kw_reads(const void *, unsigned bytes, bool at_once);
void kw_writes(const void *, unsigned bytes);  // whatever it held, by a strong access
unsigned kw_lane();
std::uint64_t kw_atomic_load(const void *, unsigned bytes);
bool kw_compare_exchange(void *, unsigned bytes, std::uint64_t *expected, std::uint64_t desired);
}
#pragma GCC visibility pop
