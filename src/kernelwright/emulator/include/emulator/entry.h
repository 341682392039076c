// How the runtime calls a kernel: with the addresses of its arguments.
#pragma once

namespace kw::emulator {

template <typename T> constexpr const char *kind_of() {
  using U = std::remove_cv_t<T>;
  if constexpr (std::is_pointer_v<U>)
    return "pointer";
  else if constexpr (std::is_same_v<U, float>)
    return "f32";
  else if constexpr (std::is_same_v<U, double>)
    return "f64";
  else if constexpr (std::is_integral_v<U> && sizeof(U) == 4)
    return "i32";
  else if constexpr (std::is_integral_v<U> && sizeof(U) == 8)
    return "i64";
  else
    return "struct";
}

// Reading the arguments is not an access of the kernel: it is not instrumented.
#define KW_UNSEEN __attribute__((no_sanitize("thread")))

template <auto KERNEL> struct Entry;
template <typename... P, void (*KERNEL)(P...)> struct Entry<KERNEL> {
  template <std::size_t... I>
  KW_UNSEEN KW_BUILT_IN void call(void *const *arguments, std::index_sequence<I...>) {
    KERNEL(*static_cast<std::remove_reference_t<P> *>(arguments[I])...);
  }
  KW_UNSEEN static void run(void *const *arguments) {
    call(arguments, std::index_sequence_for<P...>{});
  }
  static constexpr const char *kinds[] = {kind_of<P>()..., nullptr};
};

}  // namespace kw::emulator

#define KW_SHOWN extern "C" __attribute__((visibility("default")))
#define KW_ENTRY(number, ...)                             \
  KW_SHOWN void kw_run_##number(void *const *arguments) { \
    kw::emulator::Entry<&__VA_ARGS__>::run(arguments);    \
  }                                                       \
  KW_SHOWN const char *const *kw_kinds_##number() {       \
    return kw::emulator::Entry<&__VA_ARGS__>::kinds;      \
  }

// All variables declared `extern __shared__`, whatever their names, at one address, after all
// static ones (linkers put .tcommon last). `labels` are the names, each with ":".
#define KW_DYNAMIC_SHARED(bytes, labels) KW_DYNAMIC_ALIGNED(bytes, 1024, labels)
#define KW_DYNAMIC_ALIGNED(bytes, align, labels)                                           \
  __asm__(".section .tcommon,\"awT\",%nobits\n.balign " #align "\n" labels ".zero " #bytes \
          "\n.text\n");                                                                    \
  extern __attribute__((visibility("hidden"))) __thread unsigned char kw_dynamic[];        \
  KW_SHOWN const void *kw_dynamic_shared() { return kw_dynamic; }
#define KW_LABEL(name) ".globl " #name "\n.hidden " #name "\n.type " #name ",STT_TLS\n" #name ":\n"
#define KW_NO_DYNAMIC_SHARED \
  KW_SHOWN const void *kw_dynamic_shared() { return nullptr; }
