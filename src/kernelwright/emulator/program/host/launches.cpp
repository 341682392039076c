// Launches. Work in a stream is done immediately, which is an order that all streams and events
// allow.
#include <dlfcn.h>
#include <sched.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <thread>

#include "graphs.h"
#include "launch_cache.h"
#include "streams.h"

using namespace kw::program;

namespace kw::program {

double seconds() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + t.tv_nsec * 1e-9;
}

namespace {

unsigned cores() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) ? 1 : CPU_COUNT(&set);
}

// The program's shared memory, and the observer of its launches.
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

// Dynamic shared memory that a kernel may have: 48 KiB, or what the program has set for it. The
// address of an instance of a template is not known here: it gets the largest that any kernel has.
size_t dynamic_limit(const void *kernel) {
  size_t most = 49152;
  for (const auto &[its, limit] : dynamic_limits())
    if (!kernel || its == kernel) most = std::max(most, limit);
  return most;
}

// Why a launch fails, and its error; an empty text if it does not.
std::pair<cudaError_t, std::string> refusal(const Job &job, const cudaDeviceProp &its) {
  const Config &c = job.config;
  const auto n = [](auto x) { return std::to_string(x); };
  const auto three = [&](const dim3 &d) { return n(d.x) + " x " + n(d.y) + " x " + n(d.z); };
  const unsigned long long threads = 1ull * c.block.x * c.block.y * c.block.z;
  if (!threads || threads > 1024 || c.block.z > 64)
    return {cudaErrorInvalidConfiguration,
            "blocks of " + three(c.block) + " threads; at most 1024, 64 along z"};
  if (!c.grid.x || !c.grid.y || !c.grid.z || c.grid.x > 2147483647u || c.grid.y > 65535 ||
      c.grid.z > 65535)
    return {cudaErrorInvalidConfiguration,
            "a grid of " + three(c.grid) + " blocks; at most 2147483647 x 65535 x 65535"};
  if (c.bound && threads > c.bound)
    return {cudaErrorInvalidValue, "blocks of " + n(threads) +
                                       " threads; __launch_bounds__ of the kernel allows " +
                                       n(c.bound)};
  if (c.shared > its.sharedMemPerBlockOptin)
    return {cudaErrorInvalidValue, n(c.shared) + " bytes of dynamic shared memory; this GPU has " +
                                       n(its.sharedMemPerBlockOptin)};
  if (c.shared > dynamic_limit(job.kernel))
    return {cudaErrorInvalidValue,
            n(c.shared) + " bytes of dynamic shared memory; " + n(dynamic_limit(job.kernel)) +
                " are allowed (cudaFuncAttributeMaxDynamicSharedMemorySize)"};
  if (c.rows > 1)
    return {cudaErrorNotSupported,
            "clusters with several blocks along y or z, which have no emulation"};
  if (c.cluster > 1 && c.grid.x % c.cluster)
    return {cudaErrorInvalidConfiguration,
            n(c.grid.x) + " blocks, which clusters of " + n(c.cluster) + " do not divide"};
  return {cudaSuccess, ""};
}

cudaError_t error_of(const std::string &message) {
  const auto has = [&](const char *words) { return message.find(words) != std::string::npos; };
  if (has("assertion `")) return cudaErrorAssert;
  if (has("misaligned")) return cudaErrorMisalignedAddress;
  if (has("not mapped")) return cudaErrorIllegalAddress;
  if (has("does not come") || has("deadlocked")) return cudaErrorLaunchTimeout;
  return cudaErrorLaunchFailure;
}

// Called once for each kernel.
void note_loops(const char *kernel) {
  static std::mutex lock;
  static std::map<std::string, bool> noted;
  std::lock_guard<std::mutex> hold(lock);
  if (!noted[kernel]) note("loops", kernel);
  noted[kernel] = true;
}

std::string duration(double seconds) {
  char text[32];
  snprintf(text, sizeof text,
           seconds < 120    ? "%.0f s"
           : seconds < 7200 ? "%.0f min"
                            : "%.1f h",
           seconds < 120    ? seconds
           : seconds < 7200 ? seconds / 60
                            : seconds / 3600);
  return text;
}

// Says of a launch that is much work for a CPU, while it runs, how long it will take, and what
// decides this; and ends the program if that is longer than the limit of the run.
class Forecast {
 public:
  Forecast(const Job &job, const emulator::Launch &launch)
      : job_(job), blocks_(1ull * launch.grid.x * launch.grid.y * launch.grid.z) {}
  // The launch has ended.
  void end() {
    std::lock_guard<std::mutex> hold(lock_);
    ended_ = true;
    changed_.notify_all();
  }
  void wait() {
    const double start = seconds();
    std::unique_lock<std::mutex> hold(lock_);
    for (double pause = kFirst; !ended_; pause *= 2) {
      changed_.wait_for(hold, std::chrono::duration<double>(pause), [this] { return ended_; });
      const auto begun = static_cast<double>(kw_blocks_begun() - before_);
      const double run = seconds() - start;
      if (!ended_ && begun > 0) tell(run, begun / static_cast<double>(blocks_));
    }
  }

 private:
  static constexpr double kFirst = 3;        // seconds until the first forecast
  static constexpr double kWorthwhile = 30;  // seconds that are said
  void tell(double run, double part) const {
    static const double limit = std::stod(setting("limit", "0"));
    static std::atomic<bool> said{false};
    const double whole = run / part;
    const bool over = limit > 0 && whole > limit;
    if (!over && (whole < kWorthwhile || said.exchange(true))) return;
    char share[16];
    snprintf(share, sizeof share, "%.2g%%", 100 * part);
    std::string text = job_.name + (": after " + duration(run)) + ", " + share + " of " +
                       std::to_string(blocks_) + " blocks have begun: the launch will take about " +
                       duration(whole) + " on this CPU";
    if (const std::string names = setting("sizes", ""); !names.empty())
      text += "; smaller values of " + names + " make it shorter";
    if (!over) {
      fprintf(stderr, "kernelwright: %s\n", text.c_str());
      return;
    }
    const Config &c = job_.config;
    note("failed", line_of(c.file, c.line, c.where) + ": " + text + ", longer than --limit");
    fflush(nullptr);
    _exit(1);
  }

  const Job &job_;
  const unsigned long long blocks_, before_ = kw_blocks_begun();
  std::mutex lock_;
  std::condition_variable changed_;
  bool ended_ = false;
};

// Returns whether it ended well.
bool execute(const Job &job, emulator::Launch &launch) {
  Runtime &r = runtime();
  fflush(nullptr);  // the host's output comes before the kernel's
  if (r.before && !r.before(job, launch)) launch.observer = nullptr;
  std::string wrong;
  // the host's thread keeps its own thread-local variables
  const unsigned long long before = kw_blocks_in_loops();
  Forecast forecast(job, launch);
  std::thread kernel([&] {
    if (const char *message = kw_launch(&launch)) wrong = message;
    forecast.end();
  });
  forecast.wait();
  kernel.join();
  if (kw_blocks_in_loops() != before) note_loops(job.name);
  if (r.after) r.after();
  if (wrong.empty()) return true;
  note("failed", std::string(job.name) + ": " + wrong);
  poison(error_of(wrong));
  return false;
}

}  // namespace

std::recursive_mutex &observed() {
  static auto *const one = new std::recursive_mutex;
  return *one;
}

namespace {
// Launches by a kernel that is running. Its threads cannot wait for them: they run when all of its
// blocks have ended, and the host waits for both.
std::mutex children_lock;
std::vector<Job> children;

void launch_from_kernel(Job job) {
  std::lock_guard<std::mutex> hold(children_lock);
  children.push_back(std::move(job));
  never_repeat();
}
void run_children() {
  std::vector<Job> all;
  {
    std::lock_guard<std::mutex> hold(children_lock);
    all.swap(children);
  }
  std::stable_partition(all.begin(), all.end(),
                        [](const Job &job) { return job.config.stream != tail_launch(); });
  for (const Job &job : all) run(job);
}
}  // namespace

void run(const Job &job) {
  if (poisoned()) return;
  const Config &c = job.config;
  cudaDeviceProp its;
  cudaGetDeviceProperties(&its, 0);
  if (const auto [e, why] = refusal(job, its); e) {
    give(e);
    if (e == cudaErrorNotSupported)  // by the emulator, not by a GPU: said in any case
      fprintf(stderr, "kernelwright: %s: %s\n", std::string(job.name).c_str(), why.c_str());
    unseen(line_of(c.file, c.line, c.where) + ": the launch of " + job.name +
           " fails: " + cudaGetErrorString(e) + ": " + why + "; the program does not check it");
    return;
  }
  const Opened opened;
  Runtime &r = runtime();
  std::unique_lock<std::recursive_mutex> alone(observed(), std::defer_lock);
  if (r.observer) alone.lock();
  emulator::Launch launch = {};
  launch.entry = job.entry;
  launch.arguments = static_cast<void *const *>(job.closure.get());
  launch.library = job.library ? *job.library : r.library;
  launch.grid = {c.grid.x, c.grid.y, c.grid.z};
  launch.block = {c.block.x, c.block.y, c.block.z};
  launch.shared = c.shared;
  launch.seed = r.seed;
  launch.patience = r.patience;
  launch.workers = r.workers;
  launch.cluster = c.cooperative ? c.grid.x * c.grid.y * c.grid.z : c.cluster;
  launch.observer = r.observer;
  const auto act = [&] { return execute(job, launch); };
  not_read_back(job);
  managed_before(job);
  if (r.observer)
    act();
  else
    repeatable(job, act);
  managed_after();
  run_children();
}

void observe(const emulator::Observer *observer,
             bool (*before)(const Job &, const emulator::Launch &), void (*after)()) {
  runtime().observer = observer;
  runtime().before = before;
  runtime().after = after;
}

void submit(Job job) {
  if (kw_current) return launch_from_kernel(std::move(job));
  auto kept = std::make_shared<Job>(std::move(job));
  const auto act = [kept] {
    run(*kept);
    return poisoned();
  };
  in_stream(kept->config.stream, cudaGraphNodeTypeKernel, act,
            [&](CUgraphNode_st &node) { describe(node, *kept); });
}

Config config_of(const cudaLaunchConfig_t &c) {
  Config config(c.gridDim, c.blockDim, c.dynamicSmemBytes, c.stream);
  for (unsigned i = 0; i < c.numAttrs; ++i) {
    if (c.attrs[i].id == cudaLaunchAttributeClusterDimension) {
      const auto &its = c.attrs[i].val.clusterDim;
      config.cluster = its.x, config.rows = its.y * its.z;
    }
    if (c.attrs[i].id == cudaLaunchAttributeCooperative)
      config.cooperative = c.attrs[i].val.cooperative != 0;
  }
  return config;
}

namespace {
std::map<const void *, Bind> &binds() {
  static std::map<const void *, Bind> all;
  return all;
}
}  // namespace
cudaError_t bound(const void *kernel, void **arguments, const Config &config, Job *job) {
  const auto entry = binds().find(kernel);
  if (entry == binds().end()) return cudaErrorInvalidDeviceFunction;
  *job = entry->second(kernel, arguments);
  job->config = config;
  return cudaSuccess;
}
const void *know(const void *kernel, Bind bind) {
  binds()[kernel] = bind;
  return kernel;
}

}  // namespace kw::program

// ---- the start of a program

extern "C" __attribute__((visibility("default"))) void kw_program_begin(const void *inside,
                                                                        const void *dynamic) {
  Runtime &r = runtime();
  kw_library(inside, dynamic, &r.library);
  r.seed = std::stoull(setting("seed", "0"));
  r.workers = static_cast<unsigned>(std::stoul(setting("workers", "0")));
  r.patience = std::stod(setting("patience", "60"));
  if (!r.workers) r.workers = cores();
  begin_apart(inside);
  const std::string observer = setting("observer", "");
  if (!observer.empty()) check_launches(observer, std::stoul(setting("checks", "0")));
  const std::string dissector = setting("dissector", "");
  if (!dissector.empty()) dissect_launches(dissector);
}
extern "C" {

cudaError_t cudaLaunchKernel(const void *kernel, dim3 grid, dim3 block, void **arguments,
                             size_t shared, cudaStream_t stream) {
  API;
  Job job;
  if (auto e = bound(kernel, arguments, Config(grid, block, shared, stream), &job)) return give(e);
  job.config.where = HERE;
  submit(job);
  return poisoned() ? cudaSuccess : cudaPeekAtLastError();  // known when the host waits
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *kernel,
                                void **arguments) {
  API;
  Job job;
  if (auto e = bound(kernel, arguments, config_of(*config), &job)) return give(e);
  job.config.where = HERE;
  submit(job);
  return cudaPeekAtLastError();
}
cudaError_t cudaLaunchCooperativeKernel(const void *kernel, dim3 grid, dim3 block, void **arguments,
                                        size_t shared, cudaStream_t stream) {
  API;
  Job job;
  if (auto e = bound(kernel, arguments, Config(grid, block, shared, stream), &job)) return give(e);
  job.config.where = HERE;
  job.config.cooperative = true;
  submit(job);
  return poisoned() ? cudaSuccess : cudaPeekAtLastError();
}
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *data) {
  API;
  const cudaHostNodeParams host = {function, data};
  const auto act = [host] {
    host.fn(host.userData);
    return give(cudaSuccess);
  };
  return in_stream(stream, cudaGraphNodeTypeHost, act,
                   [&](CUgraphNode_st &node) { node.host = host; });
}
}
