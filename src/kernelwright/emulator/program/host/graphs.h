// Graphs, and streams that record them.
#pragma once
#include "host.h"

struct CUgraphNode_st {
  std::function<cudaError_t()> act;
  cudaGraphNodeType type;
  std::vector<cudaGraphNode_t> after;  // the nodes that it depends on
  cudaKernelNodeParams kernel;
};
struct CUgraph_st {
  std::vector<cudaGraphNode_t> nodes;  // in an order that satisfies their dependencies
};
struct CUgraphExec_st {
  std::vector<std::function<cudaError_t()>> acts;
};
struct CUstream_st {
  cudaGraph_t recording = nullptr;
};

namespace kw::program {
// The job of a kernel given by its address, with these arguments.
cudaError_t bound(const void *kernel, void **arguments, const Config &, Job *);
}  // namespace kw::program

// The beginning of every function of the API.
#define API            \
  from_host(__func__); \
  if (cudaError_t e = poisoned()) return give(e)
