// Launches, streams, events and graphs. What is put into a stream is done at once: an order that
// every stream and event allows.
#include <dlfcn.h>
#include <sched.h>
#include <time.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "host.h"

using namespace kw::program;

struct CUgraphNode_st {
  std::function<cudaError_t()> act;
  cudaGraphNodeType type;
  std::vector<cudaGraphNode_t> after;  // what it waits for
  cudaKernelNodeParams kernel;
};
struct CUgraph_st {
  std::vector<cudaGraphNode_t> nodes;  // in an order that satisfies them
};
struct CUgraphExec_st {
  std::vector<std::function<cudaError_t()>> acts;
};
struct CUstream_st {
  cudaGraph_t recording = nullptr;
};
struct CUevent_st {
  double at = -1;  // seconds
};

namespace kw::program {
namespace {

double now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + t.tv_nsec * 1e-9;
}

unsigned cores() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) ? 1 : CPU_COUNT(&set);
}

// The program's shared memory, and whoever looks on.
struct Runtime {
  emulator::Library library = {};
  const emulator::Observer *observer = nullptr;
  bool (*before)(const Job &, const emulator::Launch &) = nullptr;
  void (*after)() = nullptr;
  unsigned long long seed = 0;
  unsigned workers = 0;
  double patience = 60;
};

Runtime &runtime() {
  static Runtime r;
  return r;
}

cudaError_t refusal(const Config &c, const cudaDeviceProp &its) {
  const unsigned long long threads = 1ull * c.block.x * c.block.y * c.block.z;
  if (!threads || threads > 1024 || c.block.z > 64) return cudaErrorInvalidConfiguration;
  if (!c.grid.x || !c.grid.y || !c.grid.z || c.grid.x > 2147483647u || c.grid.y > 65535 ||
      c.grid.z > 65535)
    return cudaErrorInvalidConfiguration;
  if (c.shared > its.sharedMemPerBlockOptin) return cudaErrorInvalidValue;
  if (c.cluster > 1 && c.grid.x % c.cluster) return cudaErrorInvalidConfiguration;
  return cudaSuccess;
}

cudaError_t error_of(const std::string &message) {
  const auto has = [&](const char *words) { return message.find(words) != std::string::npos; };
  if (has("assertion `")) return cudaErrorAssert;
  if (has("misaligned")) return cudaErrorMisalignedAddress;
  if (has("not mapped")) return cudaErrorIllegalAddress;
  if (has("does not come") || has("deadlocked")) return cudaErrorLaunchTimeout;
  return cudaErrorLaunchFailure;
}

}  // namespace

void run(const Job &job) {
  if (poisoned()) return;
  const Config &c = job.config;
  cudaDeviceProp its;
  cudaGetDeviceProperties(&its, 0);
  if (const cudaError_t e = refusal(c, its)) {
    give(e);
    return;
  }
  Runtime &r = runtime();
  emulator::Launch launch = {};
  launch.entry = job.entry;
  launch.arguments = static_cast<void *const *>(job.closure.get());
  launch.library = r.library;
  launch.grid = {c.grid.x, c.grid.y, c.grid.z};
  launch.block = {c.block.x, c.block.y, c.block.z};
  launch.shared = c.shared;
  launch.seed = r.seed;
  launch.patience = r.patience;
  launch.workers = r.workers;
  launch.cluster = c.cooperative ? c.grid.x * c.grid.y * c.grid.z : c.cluster;
  launch.observer = r.observer;
  fflush(nullptr);  // what the host printed before comes before what the kernel prints
  if (r.before && !r.before(job, launch)) launch.observer = nullptr;
  std::string wrong;
  // the host's thread keeps its own thread-local variables
  std::thread([&] {
    if (const char *message = kw_launch(&launch)) wrong = message;
  }).join();
  if (r.after) r.after();
  if (wrong.empty()) return;
  note("failed", std::string(job.name) + ": " + wrong);
  poison(error_of(wrong));
}

void observe(const emulator::Observer *observer,
             bool (*before)(const Job &, const emulator::Launch &), void (*after)()) {
  runtime().observer = observer;
  runtime().before = before;
  runtime().after = after;
}

void submit(Job job) {
  from_host("a launch");
  auto kept = std::make_shared<Job>(std::move(job));
  in_stream(kept->config.stream, [kept] {
    run(*kept);
    return poisoned();
  });
}

cudaError_t in_stream(cudaStream_t s, std::function<cudaError_t()> act) {
  const auto value = reinterpret_cast<std::uintptr_t>(s);
  if (value > 2 && s->recording) {
    auto *node = new CUgraphNode_st{std::move(act), cudaGraphNodeTypeKernel, {}, {}};
    s->recording->nodes.push_back(node);
    return give(cudaSuccess);
  }
  return act();
}

Config config_of(const cudaLaunchConfig_t &c) {
  Config made(c.gridDim, c.blockDim, c.dynamicSmemBytes, c.stream);
  for (unsigned i = 0; i < c.numAttrs; ++i) {
    if (c.attrs[i].id == cudaLaunchAttributeClusterDimension)
      made.cluster = c.attrs[i].val.clusterDim.x;
    if (c.attrs[i].id == cudaLaunchAttributeCooperative)
      made.cooperative = c.attrs[i].val.cooperative != 0;
  }
  return made;
}

namespace {
std::map<const void *, Bind> &binds() {
  static std::map<const void *, Bind> all;
  return all;
}
cudaError_t bound(const void *kernel, void **arguments, const Config &config, Job *made) {
  const auto found = binds().find(kernel);
  if (found == binds().end()) return cudaErrorInvalidDeviceFunction;
  *made = found->second(kernel, arguments);
  made->config = config;
  return cudaSuccess;
}
}  // namespace
const void *know(const void *kernel, Bind bind) {
  binds()[kernel] = bind;
  return kernel;
}

}  // namespace kw::program

// ---- how a program starts

extern "C" __attribute__((visibility("default"))) void kw_program_begin(const void *inside,
                                                                        const void *dynamic) {
  Runtime &r = runtime();
  kw_library(inside, dynamic, &r.library);
  r.seed = std::stoull(setting("seed", "0"));
  r.workers = static_cast<unsigned>(std::stoul(setting("workers", "0")));
  r.patience = std::stod(setting("patience", "60"));
  if (!r.workers) r.workers = cores();
  const std::string observer = setting("observer", "");
  if (!observer.empty()) check_launches(observer, std::stoul(setting("checks", "0")));
  const std::string dissector = setting("dissector", "");
  if (!dissector.empty()) dissect_launches(dissector);
}
#define API                        \
  from_host(__func__);             \
  if (cudaError_t e = poisoned()) \
  return give(e)

extern "C" {

cudaError_t cudaLaunchKernel(const void *kernel, dim3 grid, dim3 block, void **arguments,
                             size_t shared, cudaStream_t stream) {
  API;
  Job job;
  if (auto e = bound(kernel, arguments, Config(grid, block, shared, stream), &job)) return give(e);
  submit(job);
  return cudaPeekAtLastError();
}
cudaError_t cudaLaunchCooperativeKernel(const void *kernel, dim3 grid, dim3 block, void **arguments,
                                        size_t shared, cudaStream_t stream) {
  API;
  Job job;
  if (auto e = bound(kernel, arguments, Config(grid, block, shared, stream), &job)) return give(e);
  job.config.cooperative = true;
  submit(job);
  return cudaPeekAtLastError();
}
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *data) {
  API;
  return in_stream(stream, [=] {
    function(data);
    return give(cudaSuccess);
  });
}

// ---- streams

cudaError_t cudaStreamCreate(cudaStream_t *stream) {
  API;
  *stream = new CUstream_st;
  return give(cudaSuccess);
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned) {
  return cudaStreamCreate(stream);
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned, int) {
  return cudaStreamCreate(stream);
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  API;
  delete stream;
  return give(cudaSuccess);
}
cudaError_t cudaStreamSynchronize(cudaStream_t) {
  API;
  return give(cudaSuccess);
}
cudaError_t cudaStreamQuery(cudaStream_t) {
  API;
  return give(cudaSuccess);
}
cudaError_t cudaStreamGetPriority(cudaStream_t, int *priority) {
  *priority = 0;
  return give(cudaSuccess);
}
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) {
  API;
  return give(cudaSuccess);
}
cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t function, void *data,
                                  unsigned) {
  API;
  function(stream, poisoned(), data);
  return give(cudaSuccess);
}

// ---- events

cudaError_t cudaEventCreate(cudaEvent_t *event) {
  API;
  *event = new CUevent_st;
  return give(cudaSuccess);
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned) { return cudaEventCreate(event); }
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  API;
  delete event;
  return give(cudaSuccess);
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t) {
  API;
  if (!event) return give(cudaErrorInvalidResourceHandle);
  event->at = now();
  return give(cudaSuccess);
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned) {
  return cudaEventRecord(event, stream);
}
cudaError_t cudaEventSynchronize(cudaEvent_t) {
  API;
  return give(cudaSuccess);
}
cudaError_t cudaEventQuery(cudaEvent_t) {
  API;
  return give(cudaSuccess);
}
cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t start, cudaEvent_t end) {
  API;
  if (!start || !end || start->at < 0 || end->at < 0) return give(cudaErrorInvalidResourceHandle);
  *milliseconds = static_cast<float>((end->at - start->at) * 1e3);
  static bool said = false;
  if (!said) note("timed", "cudaEventElapsedTime");
  said = true;
  return give(cudaSuccess);
}

// ---- graphs: recorded launches

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  API;
  if (reinterpret_cast<std::uintptr_t>(stream) <= 2)
    return give(cudaErrorStreamCaptureUnsupported);
  stream->recording = new CUgraph_st;
  return give(cudaSuccess);
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph) {
  API;
  *graph = stream->recording;
  stream->recording = nullptr;
  return give(*graph ? cudaSuccess : cudaErrorStreamCaptureInvalidated);
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus *status) {
  API;
  const bool records = reinterpret_cast<std::uintptr_t>(stream) > 2 && stream->recording;
  *status = records ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return give(cudaSuccess);
}
cudaError_t cudaGraphCreate(cudaGraph_t *graph, unsigned) {
  API;
  *graph = new CUgraph_st;
  return give(cudaSuccess);
}
cudaError_t cudaGraphDestroy(cudaGraph_t) {
  API;
  return give(cudaSuccess);
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *made, cudaGraph_t graph, unsigned long long) {
  API;
  *made = new CUgraphExec_st;
  std::vector<cudaGraphNode_t> left = graph->nodes, done;
  while (!left.empty()) {  // each as soon as what it waits for is done
    const auto next = std::find_if(left.begin(), left.end(), [&](cudaGraphNode_t n) {
      return std::all_of(n->after.begin(), n->after.end(), [&](cudaGraphNode_t a) {
        return std::find(done.begin(), done.end(), a) != done.end();
      });
    });
    if (next == left.end()) return give(cudaErrorInvalidValue);
    (*made)->acts.push_back((*next)->act);
    done.push_back(*next);
    left.erase(next);
  }
  return give(cudaSuccess);
}
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *made, cudaGraph_t graph,
                                          unsigned long long flags) {
  return cudaGraphInstantiate(made, graph, flags);
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  API;
  delete exec;
  return give(cudaSuccess);
}
cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) { return give(cudaSuccess); }
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t) {
  API;
  for (const auto &act : exec->acts)
    if (const cudaError_t e = act()) return give(e);
  return give(cudaSuccess);
}
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count) {
  API;
  if (nodes)
    for (size_t i = 0; i < *count && i < graph->nodes.size(); ++i) nodes[i] = graph->nodes[i];
  *count = graph->nodes.size();
  return give(cudaSuccess);
}
cudaError_t cudaGraphClone(cudaGraph_t *made, cudaGraph_t graph) {
  API;
  *made = new CUgraph_st(*graph);
  return give(cudaSuccess);
}
cudaError_t cudaGraphAddDependencies(cudaGraph_t, const cudaGraphNode_t *from,
                                     const cudaGraphNode_t *to, const cudaGraphEdgeData *,
                                     size_t count) {
  API;
  for (size_t i = 0; i < count; ++i) to[i]->after.push_back(from[i]);
  return give(cudaSuccess);
}
namespace {
cudaError_t add(cudaGraphNode_t *made, cudaGraph_t graph, const cudaGraphNode_t *after,
                size_t count, cudaGraphNodeType type, std::function<cudaError_t()> act) {
  *made = new CUgraphNode_st{std::move(act), type, {}, {}};
  (*made)->after.assign(after, after + count);
  graph->nodes.push_back(*made);
  return give(cudaSuccess);
}
}  // namespace
cudaError_t cudaGraphAddKernelNode(cudaGraphNode_t *made, cudaGraph_t graph,
                                   const cudaGraphNode_t *after, size_t count,
                                   const cudaKernelNodeParams *p) {
  API;
  Job job;
  const Config config(p->gridDim, p->blockDim, p->sharedMemBytes);
  if (auto e = bound(p->func, p->kernelParams, config, &job)) return give(e);
  return add(made, graph, after, count, cudaGraphNodeTypeKernel, [job] {
    run(job);
    return poisoned();
  });
}
cudaError_t cudaGraphAddMemcpyNode(cudaGraphNode_t *made, cudaGraph_t graph,
                                   const cudaGraphNode_t *after, size_t count,
                                   const cudaMemcpy3DParms *p) {
  API;
  const cudaMemcpy3DParms own = *p;
  return add(made, graph, after, count, cudaGraphNodeTypeMemcpy,
             [own] { return cudaMemcpy3D(&own); });
}
cudaError_t cudaGraphAddMemcpyNode1D(cudaGraphNode_t *made, cudaGraph_t graph,
                                     const cudaGraphNode_t *after, size_t count, void *to,
                                     const void *from, size_t bytes, cudaMemcpyKind kind) {
  API;
  return add(made, graph, after, count, cudaGraphNodeTypeMemcpy,
             [=] { return cudaMemcpy(to, from, bytes, kind); });
}
cudaError_t cudaGraphAddMemsetNode(cudaGraphNode_t *made, cudaGraph_t graph,
                                   const cudaGraphNode_t *after, size_t count,
                                   const cudaMemsetParams *p) {
  API;
  const cudaMemsetParams own = *p;
  return add(made, graph, after, count, cudaGraphNodeTypeMemset, [own] {
    for (size_t y = 0; y < std::max<size_t>(own.height, 1); ++y)
      for (size_t x = 0; x < own.width; ++x)
        std::memcpy(static_cast<char *>(own.dst) + y * own.pitch + x * own.elementSize, &own.value,
                    own.elementSize);
    wrote(own.dst, std::max(own.pitch * (own.height - 1), size_t(0)) + own.width * own.elementSize);
    return give(cudaSuccess);
  });
}
cudaError_t cudaGraphAddHostNode(cudaGraphNode_t *made, cudaGraph_t graph,
                                 const cudaGraphNode_t *after, size_t count,
                                 const cudaHostNodeParams *p) {
  API;
  const cudaHostNodeParams own = *p;
  return add(made, graph, after, count, cudaGraphNodeTypeHost, [own] {
    own.fn(own.userData);
    return give(cudaSuccess);
  });
}
cudaError_t cudaGraphAddEmptyNode(cudaGraphNode_t *made, cudaGraph_t graph,
                                  const cudaGraphNode_t *after, size_t count) {
  API;
  return add(made, graph, after, count, cudaGraphNodeTypeEmpty, [] { return cudaSuccess; });
}
}
