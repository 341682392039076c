// Lesson launches: the same 20 kernels launched one by one, and as a graph;
// two streams in order.
//
//     kernelwright run graph.cu                   in the emulator, without
//     times kernelwright run graph.cu --gpu -- times    on this machine's GPU
#include <cstdio>

constexpr int N = 4096, STEPS = 20;

__global__ void step(float *x) {
  x[blockIdx.x * blockDim.x + threadIdx.x] += 1;
}

void launch_all(float *x, cudaStream_t stream) {
  for (int k = 0; k < STEPS; k++) step<<<N / 256, 256, 0, stream>>>(x);
}

// Milliseconds on the GPU, between two events in the stream.
template <typename F> float timed(cudaStream_t stream, F work) {
  cudaEvent_t begin, end;
  cudaEventCreate(&begin);
  cudaEventCreate(&end);
  cudaEventRecord(begin, stream);
  work();
  cudaEventRecord(end, stream);
  cudaEventSynchronize(
      end);  // the host waits; before this, work() has only been queued
  float ms = 0;
  cudaEventElapsedTime(&ms, begin, end);
  return ms;
}

cudaGraphExec_t captured(float *x, cudaStream_t stream) {
  cudaGraph_t graph;
  cudaGraphExec_t made;
  cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal);
  launch_all(x, stream);  // recorded, not executed
  cudaStreamEndCapture(stream, &graph);
  cudaGraphInstantiate(&made, graph, 0);
  return made;
}

// A second stream that waits for the first: after the event, not before.
void in_order(float *x, cudaStream_t first, cudaStream_t second) {
  cudaEvent_t done;
  cudaEventCreate(&done);
  launch_all(x, first);
  cudaEventRecord(done, first);
  cudaStreamWaitEvent(second, done, 0);
  launch_all(x, second);
  cudaStreamSynchronize(second);
}

int main(int count, char **) {
  float *x, first = 0;
  cudaStream_t a, b;
  cudaStreamCreate(&a);
  cudaStreamCreate(&b);
  cudaMalloc(&x, N * sizeof(float));
  cudaMemset(x, 0, N * sizeof(float));
  float single = timed(a, [&] { launch_all(x, a); });
  cudaGraphExec_t graph = captured(x, a);
  float replayed = timed(a, [&] { cudaGraphLaunch(graph, a); });
  in_order(x, a, b);
  cudaMemcpy(&first, x, sizeof(float), cudaMemcpyDeviceToHost);
  if (count > 1)
    printf("one by one %.3f ms, as a graph %.3f ms\n", single, replayed);
  cudaFree(x);
  return first == 4 * STEPS ? 0 : 1;  // one by one, replayed, and two streams
}
