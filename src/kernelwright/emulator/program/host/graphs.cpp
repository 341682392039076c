// Graphs: recorded launches and copies, in an order that satisfies their dependencies.
#include "graphs.h"

#include <algorithm>
#include <cstring>
#include <fstream>

#include "streams.h"

using namespace kw::program;

using Nodes = std::vector<cudaGraphNode_t>;

namespace {

unsigned long long graphs = 0;

// Each node when all of its dependencies are done; fewer nodes if there is a cycle.
Nodes in_order(cudaGraph_t graph) {
  Nodes left = graph->nodes, done;
  while (!left.empty()) {
    const auto next = std::find_if(left.begin(), left.end(), [&](cudaGraphNode_t n) {
      return std::all_of(n->after.begin(), n->after.end(), [&](cudaGraphNode_t a) {
        return std::find(done.begin(), done.end(), a) != done.end();
      });
    });
    if (next == left.end()) return done;
    done.push_back(*next);
    left.erase(next);
  }
  return done;
}

cudaError_t steps_of(cudaGraph_t graph, std::vector<CUgraphExec_st::Step> *node) {
  const Nodes nodes = in_order(graph);
  if (nodes.size() != graph->nodes.size()) return cudaErrorInvalidValue;
  for (cudaGraphNode_t n : nodes) {
    std::vector<size_t> after;
    for (cudaGraphNode_t a : n->after)
      after.push_back(
          static_cast<size_t>(std::find(nodes.begin(), nodes.end(), a) - nodes.begin()));
    std::sort(after.begin(), after.end());
    node->push_back({n, n->type, after, n->act, true});
  }
  return cudaSuccess;
}

cudaError_t run_steps(const std::vector<CUgraphExec_st::Step> &steps) {
  for (const auto &step : steps)
    if (const cudaError_t e = step.enabled && step.act ? step.act() : cudaSuccess) return give(e);
  return give(cudaSuccess);
}

cudaGraph_t clone(cudaGraph_t graph) {
  auto *duplicate = new CUgraph_st{++graphs, {}, {}};
  std::map<cudaGraphNode_t, cudaGraphNode_t> copies;
  for (cudaGraphNode_t n : graph->nodes) {
    auto *copy = new CUgraphNode_st(*n);
    copy->graph = duplicate, copy->copied = n;
    duplicate->nodes.push_back(copies[n] = copy);
  }
  for (cudaGraphNode_t n : duplicate->nodes)
    for (cudaGraphNode_t &a : n->after) a = copies[a];
  return duplicate;
}

cudaError_t list(const Nodes &all, cudaGraphNode_t *nodes, size_t *count) {
  if (nodes) std::copy_n(all.begin(), std::min(*count, all.size()), nodes);
  *count = all.size();
  return give(cudaSuccess);
}

cudaError_t fill(const cudaMemsetParams &p) {
  const size_t rows = std::max<size_t>(p.height, 1), width = p.width * p.elementSize;
  for (size_t y = 0; y < rows; ++y) {
    char *row = static_cast<char *>(p.dst) + y * p.pitch;
    // checks the row, and says who writes it
    if (const cudaError_t e = cudaMemset(row, static_cast<int>(p.value & 0xff), width)) return e;
    const OpenedPart opened(row, nullptr);
    for (size_t x = 0; x < p.width && p.elementSize > 1; ++x)
      std::memcpy(row + x * p.elementSize, &p.value, p.elementSize);
  }
  return give(cudaSuccess);
}

// ---- what a node does, by its parameters

void set_copy(CUgraphNode_st &node, const cudaMemcpy3DParms &p) {
  node.type = cudaGraphNodeTypeMemcpy, node.copy = p;
  node.act = [p] { return cudaMemcpy3D(&p); };
}
void set_copy(CUgraphNode_st &node, void *to, const void *from, size_t bytes, cudaMemcpyKind kind) {
  node.type = cudaGraphNodeTypeMemcpy;
  node.copy = {};
  node.copy.srcPtr = {const_cast<void *>(from), bytes, bytes, 1};
  node.copy.dstPtr = {to, bytes, bytes, 1};
  node.copy.extent = {bytes, 1, 1}, node.copy.kind = kind;
  node.act = [=] { return cudaMemcpy(to, from, bytes, kind); };
}
void set_fill(CUgraphNode_st &node, const cudaMemsetParams &p) {
  node.type = cudaGraphNodeTypeMemset, node.set = p;
  node.act = [p] { return fill(p); };
}
void set_host(CUgraphNode_st &node, const cudaHostNodeParams &p) {
  node.type = cudaGraphNodeTypeHost, node.host = p;
  node.act = [p] {
    p.fn(p.userData);
    return give(cudaSuccess);
  };
}
void set_empty(CUgraphNode_st &node, cudaGraphNodeType type) {
  node.type = type;
  node.act = [] { return cudaSuccess; };
}
cudaError_t set_inner(CUgraphNode_st &node, cudaGraph_t inner) {
  node.type = cudaGraphNodeTypeGraph;
  node.inner.reset(clone(inner));
  std::vector<CUgraphExec_st::Step> steps;
  if (const cudaError_t e = steps_of(node.inner.get(), &steps)) return e;
  node.act = [steps] { return run_steps(steps); };
  return cudaSuccess;
}
// An event that a graph records orders the host's later work behind the whole graph.
void set_event(CUgraphNode_st &node, cudaEvent_t event, cudaGraphNodeType type) {
  set_empty(node, type);
  node.event = event;
  if (type == cudaGraphNodeTypeEventRecord)
    node.act = [event] { return cudaEventRecord(event, nullptr); };
}
cudaError_t set_kernel(CUgraphNode_st &node, const cudaKernelNodeParams &p) {
  Config config(p.gridDim, p.blockDim, p.sharedMemBytes);
  Job job;
  if (node.job.remade && p.func == node.kernel.func) {
    config.bound = node.job.config.bound, config.cluster = node.job.config.cluster;
    config.cooperative = node.job.config.cooperative;
    config.file = node.job.config.file, config.line = node.job.config.line;
    job = node.job;
    job.closure = job.remade(node.job.closure.get(), p.kernelParams);
    job.config = config;
  } else if (const cudaError_t e = bound(p.func, p.kernelParams, config, &job)) {
    return e;
  }
  node.type = cudaGraphNodeTypeKernel;
  describe(node, job);
  node.act = [job] {
    run(job);
    return poisoned();
  };
  return cudaSuccess;
}

cudaError_t add(cudaGraphNode_t *added, cudaGraph_t graph, const cudaGraphNode_t *after,
                size_t count, const std::function<cudaError_t(CUgraphNode_st &)> &set) {
  if (!added || !graph) return give(cudaErrorInvalidValue);
  auto node = std::make_unique<CUgraphNode_st>();
  if (const cudaError_t e = set(*node)) return give(e);
  node->graph = graph;
  node->after.assign(after, after + count);
  graph->nodes.push_back(*added = node.release());
  return give(cudaSuccess);
}
#define ADD(...)                                                  \
  API;                                                            \
  return add(added, graph, after, count, [&](CUgraphNode_st &n) { \
    __VA_ARGS__;                                                  \
    return cudaSuccess;                                           \
  })

// Changes the step of an executable graph, not the node.
cudaError_t change(cudaGraphExec_t exec, cudaGraphNode_t node,
                   const std::function<cudaError_t(CUgraphNode_st &)> &set) {
  for (auto &step : exec->steps)
    if (step.node == node) {
      CUgraphNode_st other(*node);
      if (const cudaError_t e = set(other)) return give(e);
      if (other.type != step.type) return give(cudaErrorInvalidValue);
      step.act = other.act;
      return give(cudaSuccess);
    }
  return give(cudaErrorInvalidValue);
}

// In the form of CUDA 12.3 and later, for every kind of node.
cudaError_t set_any(CUgraphNode_st &n, cudaGraphNodeParams &p) {
  switch (p.type) {
    case cudaGraphNodeTypeKernel:
      return set_kernel(n, {p.kernel.func, p.kernel.gridDim, p.kernel.blockDim,
                            p.kernel.sharedMemBytes, p.kernel.kernelParams, p.kernel.extra});
    case cudaGraphNodeTypeMemcpy:
      return set_copy(n, p.memcpy.copyParams), cudaSuccess;
    case cudaGraphNodeTypeMemset:
      return set_fill(n, {p.memset.dst, p.memset.pitch, p.memset.value, p.memset.elementSize,
                          p.memset.width, p.memset.height}),
             cudaSuccess;
    case cudaGraphNodeTypeHost:
      return set_host(n, {p.host.fn, p.host.userData}), cudaSuccess;
    case cudaGraphNodeTypeGraph:
      return set_inner(n, p.graph.graph);
    case cudaGraphNodeTypeEmpty:
      return set_empty(n, p.type), cudaSuccess;
    case cudaGraphNodeTypeEventRecord:
      return set_event(n, p.eventRecord.event, p.type), cudaSuccess;
    case cudaGraphNodeTypeWaitEvent:
      return set_event(n, p.eventWait.event, p.type), cudaSuccess;
    default:
      return cudaErrorNotSupported;
  }
}

}  // namespace

namespace kw::program {
void describe(CUgraphNode_st &node, const Job &job) {
  node.job = job;
  node.arguments.assign(job.count, nullptr);
  if (job.places) job.places(job.closure.get(), node.arguments.data());
  const void *its = job.kernel ? job.kernel : reinterpret_cast<const void *>(job.entry);
  const Config &c = job.config;
  node.kernel = {const_cast<void *>(its),         c.grid,  c.block,
                 static_cast<unsigned>(c.shared), nullptr, nullptr};
}
}  // namespace kw::program

extern "C" {

// ---- recording

cudaError_t cudaStreamBeginCaptureToGraph(cudaStream_t stream, cudaGraph_t graph,
                                          const cudaGraphNode_t *after, const cudaGraphEdgeData *,
                                          size_t count, cudaStreamCaptureMode) {
  API;
  if (!is_own(stream)) return give(cudaErrorStreamCaptureUnsupported);
  if (stream->recording) return give(cudaErrorIllegalState);
  stream->recording = graph;
  stream->last.assign(after, after + count);
  graph->streams = {stream};
  return give(cudaSuccess);
}
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  API;
  cudaGraph_t graph = new CUgraph_st{++graphs, {}, {}};
  return cudaStreamBeginCaptureToGraph(stream, graph, nullptr, nullptr, 0, mode);
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph) {
  API;
  *graph = is_own(stream) ? stream->recording : nullptr;
  if (!*graph) return give(cudaErrorIllegalState);
  const auto joined = [&](cudaGraphNode_t n) {
    const auto has = [&](const Nodes &all) {
      return std::find(all.begin(), all.end(), n) != all.end();
    };
    return has(stream->last) ||
           std::any_of((*graph)->nodes.begin(), (*graph)->nodes.end(),
                       [&](cudaGraphNode_t other) { return has(other->after); });
  };
  bool all = true;
  for (cudaStream_t s : (*graph)->streams) {
    all &= std::all_of(s->last.begin(), s->last.end(), joined);
    s->recording = nullptr;
  }
  for (cudaStream_t s : (*graph)->streams) s->last.clear();
  (*graph)->streams.clear();
  if (!all) *graph = nullptr;
  return give(all ? cudaSuccess : cudaErrorStreamCaptureUnjoined);
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus *status) {
  API;
  const bool records = is_own(stream) && stream->recording;
  *status = records ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return give(cudaSuccess);
}
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus *status,
                                     unsigned long long *id, cudaGraph_t *graph,
                                     const cudaGraphNode_t **after, const cudaGraphEdgeData **edges,
                                     size_t *count) {
  if (const cudaError_t e = cudaStreamIsCapturing(stream, status)) return e;
  if (edges) *edges = nullptr;
  if (*status != cudaStreamCaptureStatusActive) return give(cudaSuccess);
  if (id) *id = stream->recording->id;
  if (graph) *graph = stream->recording;
  if (after) *after = stream->last.data();
  if (count) *count = stream->last.size();
  return give(cudaSuccess);
}
cudaError_t cudaStreamUpdateCaptureDependencies(cudaStream_t stream, cudaGraphNode_t *nodes,
                                                const cudaGraphEdgeData *, size_t count,
                                                unsigned flags) {
  API;
  if (!is_own(stream) || !stream->recording) return give(cudaErrorIllegalState);
  if (flags == cudaStreamSetCaptureDependencies) stream->last.clear();
  stream->last.insert(stream->last.end(), nodes, nodes + count);
  return give(cudaSuccess);
}

// ---- graphs

cudaError_t cudaGraphCreate(cudaGraph_t *graph, unsigned) {
  API;
  *graph = new CUgraph_st{++graphs, {}, {}};
  return give(cudaSuccess);
}
cudaError_t cudaGraphDestroy(cudaGraph_t) {
  API;
  return give(cudaSuccess);  // executable graphs name its nodes
}
cudaError_t cudaGraphClone(cudaGraph_t *copied, cudaGraph_t graph) {
  API;
  *copied = clone(graph);
  return give(cudaSuccess);
}
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count) {
  API;
  return list(graph->nodes, nodes, count);
}
cudaError_t cudaGraphGetRootNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count) {
  API;
  Nodes roots;
  for (cudaGraphNode_t n : graph->nodes)
    if (n->after.empty()) roots.push_back(n);
  return list(roots, nodes, count);
}
cudaError_t cudaGraphGetEdges(cudaGraph_t graph, cudaGraphNode_t *from, cudaGraphNode_t *to,
                              cudaGraphEdgeData *data, size_t *count) {
  API;
  size_t n = 0;
  for (cudaGraphNode_t node : graph->nodes)
    for (cudaGraphNode_t a : node->after) {
      if (from && to && n < *count) from[n] = a, to[n] = node;
      if (data && n < *count) data[n] = {};
      ++n;
    }
  *count = n;
  return give(cudaSuccess);
}
cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t node, cudaGraphNode_t *nodes,
                                         cudaGraphEdgeData *, size_t *count) {
  API;
  return list(node->after, nodes, count);
}
cudaError_t cudaGraphNodeGetDependentNodes(cudaGraphNode_t node, cudaGraphNode_t *nodes,
                                           cudaGraphEdgeData *, size_t *count) {
  API;
  Nodes behind;
  for (cudaGraphNode_t n : node->graph->nodes)
    if (std::find(n->after.begin(), n->after.end(), node) != n->after.end()) behind.push_back(n);
  return list(behind, nodes, count);
}
cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, cudaGraphNodeType *type) {
  API;
  *type = node->type;
  return give(cudaSuccess);
}
cudaError_t cudaGraphNodeFindInClone(cudaGraphNode_t *copy, cudaGraphNode_t node,
                                     cudaGraph_t graph) {
  API;
  for (cudaGraphNode_t n : graph->nodes)
    if (n->copied == node) return *copy = n, give(cudaSuccess);
  return give(cudaErrorInvalidValue);
}
cudaError_t cudaGraphAddDependencies(cudaGraph_t, const cudaGraphNode_t *from,
                                     const cudaGraphNode_t *to, const cudaGraphEdgeData *,
                                     size_t count) {
  API;
  for (size_t i = 0; i < count; ++i) to[i]->after.push_back(from[i]);
  return give(cudaSuccess);
}
cudaError_t cudaGraphRemoveDependencies(cudaGraph_t, const cudaGraphNode_t *from,
                                        const cudaGraphNode_t *to, const cudaGraphEdgeData *,
                                        size_t count) {
  API;
  for (size_t i = 0; i < count; ++i) {
    Nodes &after = to[i]->after;
    after.erase(std::remove(after.begin(), after.end(), from[i]), after.end());
  }
  return give(cudaSuccess);
}
cudaError_t cudaGraphDestroyNode(cudaGraphNode_t node) {
  API;
  Nodes &all = node->graph->nodes;
  all.erase(std::remove(all.begin(), all.end(), node), all.end());
  for (cudaGraphNode_t n : all)
    n->after.erase(std::remove(n->after.begin(), n->after.end(), node), n->after.end());
  return give(cudaSuccess);
}
cudaError_t cudaGraphDebugDotPrint(cudaGraph_t graph, const char *path, unsigned) {
  API;
  std::ofstream file(path);
  file << "digraph {\n";
  for (size_t i = 0; i < graph->nodes.size(); ++i) {
    const CUgraphNode_st &n = *graph->nodes[i];
    file << "  " << i << " [label=\"" << (n.job.name ? n.job.name : "") << ' ' << n.type
         << "\"];\n";
    for (cudaGraphNode_t a : n.after)
      file << "  " << std::find(graph->nodes.begin(), graph->nodes.end(), a) - graph->nodes.begin()
           << " -> " << i << ";\n";
  }
  file << "}\n";
  return give(file ? cudaSuccess : cudaErrorOperatingSystem);
}

// ---- executable graphs

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *result, cudaGraph_t graph,
                                 unsigned long long flags) {
  API;
  auto exec = std::make_unique<CUgraphExec_st>();
  exec->flags = flags;
  if (const cudaError_t e = steps_of(graph, &exec->steps)) return give(e);
  *result = exec.release();
  return give(cudaSuccess);
}
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *exec, cudaGraph_t graph,
                                          unsigned long long flags) {
  return cudaGraphInstantiate(exec, graph, flags);
}
cudaError_t cudaGraphInstantiateWithParams(cudaGraphExec_t *exec, cudaGraph_t graph,
                                           cudaGraphInstantiateParams *p) {
  const cudaError_t e = cudaGraphInstantiate(exec, graph, p->flags);
  p->result_out = e ? cudaGraphInstantiateError : cudaGraphInstantiateSuccess;
  p->errNode_out = nullptr;
  return e;
}
cudaError_t cudaGraphExecGetFlags(cudaGraphExec_t exec, unsigned long long *flags) {
  API;
  *flags = exec->flags;
  return give(cudaSuccess);
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  API;
  delete exec;
  return give(cudaSuccess);
}
cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) { return give(cudaSuccess); }
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  API;
  return in_stream(stream, [steps = exec->steps] { return run_steps(steps); });
}
cudaError_t cudaGraphExecUpdate(cudaGraphExec_t exec, cudaGraph_t graph,
                                cudaGraphExecUpdateResultInfo *info) {
  API;
  std::vector<CUgraphExec_st::Step> steps;
  cudaGraphExecUpdateResultInfo result = {cudaGraphExecUpdateSuccess, nullptr, nullptr};
  if (steps_of(graph, &steps)) result.result = cudaGraphExecUpdateError;
  if (steps.size() != exec->steps.size()) result.result = cudaGraphExecUpdateErrorTopologyChanged;
  for (size_t i = 0; i < steps.size() && !result.result; ++i) {
    if (steps[i].type != exec->steps[i].type)
      result = {cudaGraphExecUpdateErrorNodeTypeChanged, steps[i].node, nullptr};
    else if (steps[i].after != exec->steps[i].after)
      result = {cudaGraphExecUpdateErrorTopologyChanged, steps[i].node, nullptr};
  }
  if (info) *info = result;
  if (result.result) return give(cudaErrorGraphExecUpdateFailure);
  for (size_t i = 0; i < steps.size(); ++i) exec->steps[i].act = steps[i].act;
  return give(cudaSuccess);
}
cudaError_t cudaGraphNodeSetEnabled(cudaGraphExec_t exec, cudaGraphNode_t node, unsigned enabled) {
  API;
  for (auto &step : exec->steps)
    if (step.node == node) return step.enabled = enabled, give(cudaSuccess);
  return give(cudaErrorInvalidValue);
}
cudaError_t cudaGraphNodeGetEnabled(cudaGraphExec_t exec, cudaGraphNode_t node, unsigned *enabled) {
  API;
  for (auto &step : exec->steps)
    if (step.node == node) return *enabled = step.enabled, give(cudaSuccess);
  return give(cudaErrorInvalidValue);
}

// ---- nodes: added, read, changed in the graph, changed in an executable graph

cudaError_t cudaGraphAddKernelNode(cudaGraphNode_t *added, cudaGraph_t graph,
                                   const cudaGraphNode_t *after, size_t count,
                                   const cudaKernelNodeParams *p) {
  ADD(return set_kernel(n, *p));
}
cudaError_t cudaGraphKernelNodeGetParams(cudaGraphNode_t node, cudaKernelNodeParams *p) {
  API;
  *p = node->kernel;
  p->kernelParams = node->arguments.data();
  return give(node->type == cudaGraphNodeTypeKernel ? cudaSuccess : cudaErrorInvalidValue);
}
cudaError_t cudaGraphKernelNodeSetParams(cudaGraphNode_t node, const cudaKernelNodeParams *p) {
  API;
  return give(set_kernel(*node, *p));
}
cudaError_t cudaGraphExecKernelNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node,
                                             const cudaKernelNodeParams *p) {
  API;
  return change(exec, node, [&](CUgraphNode_st &n) { return set_kernel(n, *p); });
}
cudaError_t cudaGraphKernelNodeSetAttribute(cudaGraphNode_t, cudaLaunchAttributeID,
                                            const cudaLaunchAttributeValue *) {
  return give(cudaSuccess);
}

cudaError_t cudaGraphAddMemcpyNode(cudaGraphNode_t *added, cudaGraph_t graph,
                                   const cudaGraphNode_t *after, size_t count,
                                   const cudaMemcpy3DParms *p) {
  ADD(set_copy(n, *p));
}
cudaError_t cudaGraphAddMemcpyNode1D(cudaGraphNode_t *added, cudaGraph_t graph,
                                     const cudaGraphNode_t *after, size_t count, void *to,
                                     const void *from, size_t bytes, cudaMemcpyKind kind) {
  ADD(set_copy(n, to, from, bytes, kind));
}
cudaError_t cudaGraphAddMemcpyNodeToSymbol(cudaGraphNode_t *added, cudaGraph_t graph,
                                           const cudaGraphNode_t *after, size_t count,
                                           const void *symbol, const void *from, size_t bytes,
                                           size_t offset, cudaMemcpyKind kind) {
  ADD(set_copy(n, static_cast<char *>(const_cast<void *>(symbol)) + offset, from, bytes, kind));
}
cudaError_t cudaGraphAddMemcpyNodeFromSymbol(cudaGraphNode_t *added, cudaGraph_t graph,
                                             const cudaGraphNode_t *after, size_t count, void *to,
                                             const void *symbol, size_t bytes, size_t offset,
                                             cudaMemcpyKind kind) {
  ADD(set_copy(n, to, static_cast<const char *>(symbol) + offset, bytes, kind));
}
cudaError_t cudaGraphMemcpyNodeGetParams(cudaGraphNode_t node, cudaMemcpy3DParms *p) {
  API;
  *p = node->copy;
  return give(cudaSuccess);
}
cudaError_t cudaGraphMemcpyNodeSetParams(cudaGraphNode_t node, const cudaMemcpy3DParms *p) {
  API;
  set_copy(*node, *p);
  return give(cudaSuccess);
}
cudaError_t cudaGraphMemcpyNodeSetParams1D(cudaGraphNode_t node, void *to, const void *from,
                                           size_t bytes, cudaMemcpyKind kind) {
  API;
  set_copy(*node, to, from, bytes, kind);
  return give(cudaSuccess);
}
cudaError_t cudaGraphExecMemcpyNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node,
                                             const cudaMemcpy3DParms *p) {
  API;
  return change(exec, node, [&](CUgraphNode_st &n) { return set_copy(n, *p), cudaSuccess; });
}
cudaError_t cudaGraphExecMemcpyNodeSetParams1D(cudaGraphExec_t exec, cudaGraphNode_t node, void *to,
                                               const void *from, size_t bytes,
                                               cudaMemcpyKind kind) {
  API;
  return change(exec, node,
                [&](CUgraphNode_st &n) { return set_copy(n, to, from, bytes, kind), cudaSuccess; });
}

cudaError_t cudaGraphAddMemsetNode(cudaGraphNode_t *added, cudaGraph_t graph,
                                   const cudaGraphNode_t *after, size_t count,
                                   const cudaMemsetParams *p) {
  ADD(set_fill(n, *p));
}
cudaError_t cudaGraphMemsetNodeGetParams(cudaGraphNode_t node, cudaMemsetParams *p) {
  API;
  *p = node->set;
  return give(cudaSuccess);
}
cudaError_t cudaGraphMemsetNodeSetParams(cudaGraphNode_t node, const cudaMemsetParams *p) {
  API;
  set_fill(*node, *p);
  return give(cudaSuccess);
}
cudaError_t cudaGraphExecMemsetNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node,
                                             const cudaMemsetParams *p) {
  API;
  return change(exec, node, [&](CUgraphNode_st &n) { return set_fill(n, *p), cudaSuccess; });
}

cudaError_t cudaGraphAddHostNode(cudaGraphNode_t *added, cudaGraph_t graph,
                                 const cudaGraphNode_t *after, size_t count,
                                 const cudaHostNodeParams *p) {
  ADD(set_host(n, *p));
}
cudaError_t cudaGraphHostNodeGetParams(cudaGraphNode_t node, cudaHostNodeParams *p) {
  API;
  *p = node->host;
  return give(cudaSuccess);
}
cudaError_t cudaGraphHostNodeSetParams(cudaGraphNode_t node, const cudaHostNodeParams *p) {
  API;
  set_host(*node, *p);
  return give(cudaSuccess);
}
cudaError_t cudaGraphExecHostNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node,
                                           const cudaHostNodeParams *p) {
  API;
  return change(exec, node, [&](CUgraphNode_st &n) { return set_host(n, *p), cudaSuccess; });
}

cudaError_t cudaGraphAddEmptyNode(cudaGraphNode_t *added, cudaGraph_t graph,
                                  const cudaGraphNode_t *after, size_t count) {
  ADD(set_empty(n, cudaGraphNodeTypeEmpty));
}
cudaError_t cudaGraphAddChildGraphNode(cudaGraphNode_t *added, cudaGraph_t graph,
                                       const cudaGraphNode_t *after, size_t count,
                                       cudaGraph_t inner) {
  ADD(return set_inner(n, inner));
}
cudaError_t cudaGraphChildGraphNodeGetGraph(cudaGraphNode_t node, cudaGraph_t *graph) {
  API;
  *graph = node->inner.get();
  return give(*graph ? cudaSuccess : cudaErrorInvalidValue);
}
cudaError_t cudaGraphExecChildGraphNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node,
                                                 cudaGraph_t inner) {
  API;
  return change(exec, node, [&](CUgraphNode_st &n) { return set_inner(n, inner); });
}
cudaError_t cudaGraphAddEventRecordNode(cudaGraphNode_t *added, cudaGraph_t graph,
                                        const cudaGraphNode_t *after, size_t count,
                                        cudaEvent_t event) {
  ADD(set_event(n, event, cudaGraphNodeTypeEventRecord));
}
cudaError_t cudaGraphAddEventWaitNode(cudaGraphNode_t *added, cudaGraph_t graph,
                                      const cudaGraphNode_t *after, size_t count,
                                      cudaEvent_t event) {
  ADD(set_event(n, event, cudaGraphNodeTypeWaitEvent));
}
cudaError_t cudaGraphAddMemAllocNode(cudaGraphNode_t *added, cudaGraph_t graph,
                                     const cudaGraphNode_t *after, size_t count,
                                     cudaMemAllocNodeParams *p) {
  const void *where = HERE;
  ADD(p->dptr = n.memory = allocate(p->bytesize, Kind::kDevice, where);
      set_empty(n, cudaGraphNodeTypeMemAlloc));
}
cudaError_t cudaGraphAddMemFreeNode(cudaGraphNode_t *added, cudaGraph_t graph,
                                    const cudaGraphNode_t *after, size_t count, void *memory) {
  // the graph allocates the same memory when it is launched again
  ADD(n.memory = memory; set_empty(n, cudaGraphNodeTypeMemFree));
}
cudaError_t cudaGraphAddNode(cudaGraphNode_t *added, cudaGraph_t graph,
                             const cudaGraphNode_t *after, const cudaGraphEdgeData *, size_t count,
                             cudaGraphNodeParams *p) {
  ADD(return set_any(n, *p));
}
cudaError_t cudaGraphNodeSetParams(cudaGraphNode_t node, cudaGraphNodeParams *p) {
  API;
  return give(set_any(*node, *p));
}
cudaError_t cudaGraphExecNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node,
                                       cudaGraphNodeParams *p) {
  API;
  return change(exec, node, [&](CUgraphNode_st &n) { return set_any(n, *p); });
}
}
