// Graphs: recorded launches and copies, in an order that satisfies their dependencies.
#include "graphs.h"

#include <algorithm>
#include <cstring>

using namespace kw::program;

extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  API;
  if (reinterpret_cast<std::uintptr_t>(stream) <= 2) return give(cudaErrorStreamCaptureUnsupported);
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
  while (!left.empty()) {  // each one when all of its dependencies are done
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
cudaError_t cudaGraphAddChildGraphNode(cudaGraphNode_t *made, cudaGraph_t graph,
                                       const cudaGraphNode_t *after, size_t count,
                                       cudaGraph_t child) {
  API;
  cudaGraphExec_t inner = nullptr;
  if (const cudaError_t e = cudaGraphInstantiate(&inner, child, 0)) return e;
  const std::shared_ptr<CUgraphExec_st> its(inner);
  return add(made, graph, after, count, cudaGraphNodeTypeGraph,
             [its] { return cudaGraphLaunch(its.get(), nullptr); });
}
}
