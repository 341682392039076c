// The API of streams and events.
#include "streams.h"

#include "graphs.h"
#include "launch_cache.h"

using namespace kw::program;

namespace kw::program {
cudaError_t in_stream(cudaStream_t s, std::function<cudaError_t()> act) {
  return in_stream(s, cudaGraphNodeTypeEmpty, std::move(act), [](CUgraphNode_st &) {});
}
cudaError_t in_stream(cudaStream_t s, cudaGraphNodeType type, std::function<cudaError_t()> act,
                      const std::function<void(CUgraphNode_st &)> &describe) {
  if (is_own(s) && s->recording) {
    auto *node = new CUgraphNode_st;
    node->act = std::move(act), node->type = type, node->graph = s->recording;
    node->after = s->last;
    describe(*node);
    s->recording->nodes.push_back(node);
    s->last = {node};
    return give(cudaSuccess);
  }
  const Issued work(s);
  return act();
}
}  // namespace kw::program

extern "C" {

// A kernel may create streams for its launches, which run one after the other.
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority) {
  if (kw_current) return *stream = nullptr, cudaSuccess;
  API;
  if (!stream) return give(cudaErrorInvalidValue);
  *stream = new CUstream_st{new_stream(flags), flags, priority};
  return give(cudaSuccess);
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}
cudaError_t cudaStreamCreate(cudaStream_t *stream) {
  return cudaStreamCreateWithPriority(stream, cudaStreamDefault, 0);
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  if (kw_current) return cudaSuccess;
  API;
  if (!is_own(stream)) return give(cudaErrorInvalidResourceHandle);
  delete stream;
  return give(cudaSuccess);
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  API;
  if (is_own(stream) && stream->recording) return give(cudaErrorStreamCaptureUnsupported);
  host_waits(stream);
  synchronized();
  return give(cudaSuccess);
}
cudaError_t cudaStreamQuery(cudaStream_t stream) { return cudaStreamSynchronize(stream); }
cudaError_t cudaStreamGetPriority(cudaStream_t stream, int *priority) {
  *priority = is_own(stream) ? stream->priority : 0;
  return give(cudaSuccess);
}
cudaError_t cudaStreamGetFlags(cudaStream_t stream, unsigned *flags) {
  API;
  *flags = is_own(stream) ? stream->flags : cudaStreamDefault;
  return give(cudaSuccess);
}
cudaError_t cudaStreamGetId(cudaStream_t stream, unsigned long long *id) {
  *id = is_own(stream) ? stream->number : 0;
  return give(cudaSuccess);
}
cudaError_t cudaStreamGetDevice(cudaStream_t, int *device) {
  *device = 0;
  return give(cudaSuccess);
}
cudaError_t cudaStreamCopyAttributes(cudaStream_t, cudaStream_t) { return give(cudaSuccess); }
cudaError_t cudaStreamGetAttribute(cudaStream_t, cudaStreamAttrID, cudaStreamAttrValue *value) {
  *value = {};
  return give(cudaSuccess);
}
cudaError_t cudaStreamSetAttribute(cudaStream_t, cudaStreamAttrID, const cudaStreamAttrValue *) {
  return give(cudaSuccess);  // hints about caches, priorities and synchronization
}
cudaError_t cudaCtxResetPersistingL2Cache() { return give(cudaSuccess); }
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  API;
  if (!event) return give(cudaErrorInvalidResourceHandle);
  if (event->graph) {  // the stream becomes part of the recording
    if (!is_own(stream)) return give(cudaErrorStreamCaptureImplicit);
    if (stream->recording != event->graph) stream->last.clear();
    stream->recording = event->graph;
    stream->recording->streams.insert(stream);
    stream->last.insert(stream->last.end(), event->last.begin(), event->last.end());
  } else {
    wait_for(stream, *event);
  }
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
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned) {
  return cudaEventCreate(event);
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  API;
  delete event;
  return give(cudaSuccess);
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  API;
  if (!event) return give(cudaErrorInvalidResourceHandle);
  event->graph = is_own(stream) ? stream->recording : nullptr;
  if (event->graph) {
    event->last = stream->last;
    return give(cudaSuccess);
  }
  event->at = seconds() + saved_seconds();
  record(*event, stream);
  return give(cudaSuccess);
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned) {
  return cudaEventRecord(event, stream);
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  API;
  if (!event) return give(cudaErrorInvalidResourceHandle);
  host_waits(*event);
  synchronized();
  return give(cudaSuccess);
}
cudaError_t cudaEventQuery(cudaEvent_t event) { return cudaEventSynchronize(event); }
cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t start, cudaEvent_t end) {
  API;
  if (!start || !end || start->at < 0 || end->at < 0) return give(cudaErrorInvalidResourceHandle);
  *milliseconds = static_cast<float>((end->at - start->at) * 1e3);
  static bool said = false;
  if (!said) note("timed", "cudaEventElapsedTime");
  said = true;
  return give(cudaSuccess);
}
}
