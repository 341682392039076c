// Graphs: nodes with what they do, and copies of them that are launched.
#pragma once
#include <set>

#include "host.h"

struct CUgraphNode_st {
  std::function<cudaError_t()> act;
  cudaGraphNodeType type;
  std::vector<cudaGraphNode_t> after;  // the nodes that it depends on
  cudaGraph_t graph = nullptr;
  cudaGraphNode_t copied = nullptr;  // the node of the graph that this one's graph is a clone of
  // Its parameters, by its type.
  kw::program::Job job;
  cudaKernelNodeParams kernel = {};
  std::vector<void *> arguments;  // in the job
  cudaMemcpy3DParms copy = {};
  cudaMemsetParams set = {};
  cudaHostNodeParams host = {};
  cudaEvent_t event = nullptr;
  void *memory = nullptr;
  std::shared_ptr<CUgraph_st> inner;
};
struct CUgraph_st {
  unsigned long long id;
  std::vector<cudaGraphNode_t> nodes;
  std::set<cudaStream_t> streams;  // those that record it
};
struct CUgraphExec_st {
  struct Step {
    cudaGraphNode_t node;  // of the graph that it was made of
    cudaGraphNodeType type;
    std::vector<size_t> after;  // steps
    std::function<cudaError_t()> act;
    bool enabled;
  };
  std::vector<Step> steps;
  unsigned long long flags = 0;
};

namespace kw::program {
// The job of a kernel given by its address, with these arguments.
cudaError_t bound(const void *kernel, void **arguments, const Config &, Job *);
// The parameters of a launch as those of a node.
void describe(CUgraphNode_st &, const Job &);
}  // namespace kw::program

// The beginning of every function of the API.
#define API            \
  from_host(__func__); \
  if (cudaError_t e = poisoned()) return give(e)
