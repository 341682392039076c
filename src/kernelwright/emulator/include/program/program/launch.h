// kernel<<<grid, block, shared, stream>>>(arguments): what such an expression becomes.
#pragma once

extern __attribute__((visibility("hidden"))) __thread unsigned char kw_dynamic[];
#define KW_DYNAMIC __asm__("kw_dynamic")

#pragma GCC visibility push(default)
namespace kw::program {

template <typename T> struct Channel;  // the format of a texel

// __cluster_dims__ of a kernel: along x, and the product of those along y and z.
struct InClusters {
  unsigned blocks, rows = 1;
};

// __launch_bounds__ of a kernel: the most threads of a block.
struct Bounded {
  unsigned threads;
};

struct Config {
  dim3 grid, block;
  size_t shared = 0;
  cudaStream_t stream = nullptr;
  unsigned cluster = 1, rows = 1;  // blocks of a cluster along x, and those along y and z
  bool cooperative = false;
  unsigned bound = 0;          // __launch_bounds__ of the kernel, or 0
  const char *file = nullptr;  // the line of the launch; or its address
  int line = 0;
  const void *where = nullptr;
  Config at(const char *its_file, int its_line) const {
    Config config = *this;
    config.file = its_file, config.line = its_line;
    return config;
  }
  Config(dim3 grid, dim3 block, size_t shared = 0, cudaStream_t stream = nullptr)
      : grid(grid), block(block), shared(shared), stream(stream) {}
  Config(InClusters c, dim3 grid, dim3 block, size_t shared = 0, cudaStream_t stream = nullptr)
      : Config(grid, block, shared, stream) {
    cluster = c.blocks, rows = c.rows;
  }
  template <typename... Rest> Config(Bounded b, Rest... rest) : Config(rest...) {
    bound = b.threads;
  }
  Config() = default;
};

// A launch with its arguments, which may run later and several times.
struct Job {
  const char *name;
  void (*entry)(void *const *);
  std::shared_ptr<void> closure;  // what `entry` is given
  Config config;
  const void *kernel;  // its address, or null
  size_t bytes = 0;    // of the closure, if these bytes are all that it is
  // Its arguments: how many, their addresses, and a closure with others.
  size_t count = 0;
  void (*places)(void *closure, void **) = nullptr;
  std::shared_ptr<void> (*remade)(const void *closure, void **arguments) = nullptr;
  const emulator::Library *library = nullptr;  // of a module that the program has loaded
};
void submit(Job);
// Memory that the host has written otherwise than by a function of the API.
void wrote(const void *, size_t bytes);

// A kernel's local variable declared without an initializer. The checks find reads of it.
template <typename T> KW_BUILT_IN void unset(T &x, const char *name) {
  using One = std::remove_all_extents_t<T>;
  if constexpr (std::is_trivially_default_constructible_v<One> && std::is_trivially_copyable_v<One>)
    kw_unset(&x, sizeof x, name);
}

// Bytes of shared memory between variables, to find accesses past the end of an array.
#define KW_GAP(name) static __shared__ __attribute__((used)) unsigned char name[64]

// The compiler must not take an array without stores for one of zeros.
#define KW_WRITTEN_ELSEWHERE(name) __asm__ volatile("" ::"r"(&name) : "memory")

// Kernels whose addresses are taken as void *: how their parameters are read.
using Bind = Job (*)(const void *kernel, void **arguments);
const void *know(const void *kernel, Bind);

template <typename F, typename... A> struct Closure {
  F f;
  std::tuple<A...> arguments;
  static constexpr bool kPlain =
      std::is_trivially_copyable_v<F> && (std::is_trivially_copyable_v<A> && ...);
  // In memory that was zero, so that equal closures have equal bytes.
  static void *operator new(size_t bytes) {
    return __builtin_memset(aligned_alloc(alignof(Closure), bytes), 0, bytes);
  }
  static void operator delete(void *p) { free(p); }
  template <std::size_t... I>
  KW_UNSEEN KW_BUILT_IN void call(Closure *c, std::index_sequence<I...>) {
    c->f(A(std::get<I>(c->arguments))...);
  }
  KW_UNSEEN static void run(void *const *p) {
    call(static_cast<Closure *>(const_cast<void *>(static_cast<const void *>(p))),
         std::index_sequence_for<A...>{});
  }
  static void drop(void *p) { delete static_cast<Closure *>(p); }
  // With a deleter of its own, each kernel would have its own classes of std::shared_ptr.
  static std::shared_ptr<void> closure(F f, A... arguments) {
    return {static_cast<void *>(new Closure{f, {arguments...}}), &drop};
  }
  static void places(void *p, void **to) {
    std::apply([&](auto &...each) { ((*to++ = const_cast<void *>((const void *)&each)), ...); },
               static_cast<Closure *>(p)->arguments);
  }
  template <std::size_t... I>
  static std::shared_ptr<void> with(const F &f, void **a, std::index_sequence<I...>) {
    return closure(f, *static_cast<std::remove_cv_t<A> *>(a[I])...);
  }
  static std::shared_ptr<void> remade(const void *p, void **a) {
    return with(static_cast<const Closure *>(p)->f, a, std::index_sequence_for<A...>{});
  }
  static Job job(const char *name, Config config, const void *kernel, F f, A... arguments) {
    return {name,         run,    closure(f, arguments...),
            config,       kernel, kPlain ? sizeof(Closure) : 0,
            sizeof...(A), places, remade};
  }
};

template <typename F> struct Launcher {
  const char *name;
  Config config;
  F f;
  // In place, so that the call of `submit` is on the launch's line.
  template <typename... A> __attribute__((always_inline)) void operator()(A... arguments) {
    using C = Closure<F, A...>;
    submit(C::job(name, config, nullptr, f, arguments...));
  }
};
template <typename F> Launcher<F> launcher(const char *name, Config config, F f) {
  return {name, config, f};
}

template <typename... P> struct Plain {
  const char *name;
  Config config;
  void (*kernel)(P...);
  __attribute__((always_inline)) void operator()(P... arguments) {
    submit(job(kernel, arguments..., name, config));
  }
  static Job job(void (*kernel)(P...), P... arguments, const char *name, Config config) {
    using C = Closure<void (*)(P...), P...>;
    return C::job(name, config, reinterpret_cast<const void *>(kernel), kernel, arguments...);
  }
};
template <typename... P> Plain<P...> plain(const char *name, void (*kernel)(P...), Config config) {
  return {name, config, kernel};
}

template <typename... P> struct Known {
  template <std::size_t... I>
  static Job with(void (*kernel)(P...), void **a, std::index_sequence<I...>) {
    return Plain<P...>::job(kernel, *static_cast<std::remove_cv_t<P> *>(a[I])..., "a kernel", {});
  }
  static Job bind(const void *kernel, void **arguments) {
    return with(reinterpret_cast<void (*)(P...)>(const_cast<void *>(kernel)), arguments,
                std::index_sequence_for<P...>{});
  }
};
template <typename... P> void *address(void (*kernel)(P...)) {
  return const_cast<void *>(know(reinterpret_cast<const void *>(kernel), Known<P...>::bind));
}
inline void *address(const void *p) { return const_cast<void *>(p); }

// What a module that is loaded at run time has: a kernel or a variable, by the name that its
// program gave it.
struct Entry {
  const char *name;
  const void *at;
  size_t bytes;  // of a variable; 0 for a kernel
};

// A call as a statement, whose error the program does not look at: KwUnchecked("f"), f(x);
struct Unchecked {
  const char *function, *file;
  int line;
};
void unchecked(const Unchecked &, long long status, const char *name, const char *text);
inline void operator,(const Unchecked &u, cudaError_t e) {
  if (e && e != cudaErrorNotReady) unchecked(u, e, ::cudaGetErrorName(e), ::cudaGetErrorString(e));
}
template <typename E,
          std::enable_if_t<std::is_enum_v<E> && !std::is_same_v<E, cudaError_t>, int> = 0>
inline void operator,(const Unchecked &u, E status) {
  if (static_cast<long long>(status)) unchecked(u, static_cast<long long>(status), "", "");
}

}  // namespace kw::program
#pragma GCC visibility pop

#define KwUnchecked(name) (kw::program::Unchecked{name, __FILE__, __LINE__})
#define KW_LAUNCH(name, call, ...)                                                     \
  kw::program::launcher(name, kw::program::Config(__VA_ARGS__).at(__FILE__, __LINE__), \
                        [=](auto... kw_a) mutable { call; })
#define KW_LAUNCH_PLAIN(name, kernel, ...) \
  kw::program::plain(name, &kernel, kw::program::Config(__VA_ARGS__).at(__FILE__, __LINE__))

// What stands behind a program's own code: its shared memory, how it starts, and a use of the type
// by which a debugger looks at threads.
extern "C" void kw_program_begin(const void *inside, const void *dynamic);
// Its kernels print, allocate or read clocks: each launch is executed.
extern "C" void kw_program_has_side_effects();
#define KW_SIDE_EFFECTS \
  __attribute__((constructor(102))) static void kw_side_effects() { kw_program_has_side_effects(); }
// Its libraries' headers read device memory on the host.
extern "C" void kw_program_shares();
#define KW_SHARES \
  __attribute__((constructor(102))) static void kw_shares() { kw_program_shares(); }
#define KW_KERNEL(...) {#__VA_ARGS__, kw::program::address(&__VA_ARGS__), 0},
#define KW_VARIABLE(...) {"&" #__VA_ARGS__, &__VA_ARGS__, sizeof(__VA_ARGS__)},
#define KW_MODULE(bytes, ...)                                             \
  KW_DYNAMIC_SHARED(bytes, KW_LABEL(kw_dynamic))                          \
  KW_SHOWN const kw::program::Entry *kw_module_entries() {                \
    static const kw::program::Entry all[] = {__VA_ARGS__{nullptr, 0, 0}}; \
    return all;                                                           \
  }
#define KW_WHOLE_PROGRAM(bytes)                                                       \
  KW_DYNAMIC_SHARED(bytes, KW_LABEL(kw_dynamic))                                      \
  __attribute__((constructor(101))) static void kw_begin() {                          \
    kw_program_begin(reinterpret_cast<const void *>(&kw_begin), kw_dynamic_shared()); \
  }                                                                                   \
  KW_SHOWN kw::emulator::Thread *kw_present() { return kw_current; }
