// Loads and stores with cache hints, which have no effect here.
#pragma once

#define KW_LOAD(name) \
  template <typename T> KW_BUILT_IN T name(const T *p) { return *p; }
KW_LOAD(__ldg)
KW_LOAD(__ldca)
KW_LOAD(__ldcg)
KW_LOAD(__ldcs)
KW_LOAD(__ldlu)
KW_LOAD(__ldcv)
#undef KW_LOAD
#define KW_STORE(name) \
  template <typename T> KW_BUILT_IN void name(T *p, kw::emulator::same<T> value) { *p = value; }
KW_STORE(__stwb)
KW_STORE(__stcg)
KW_STORE(__stcs)
KW_STORE(__stwt)
#undef KW_STORE

KW_BUILT_IN size_t __cvta_generic_to_shared(const void *p) { return kw_shared_address(p); }
KW_BUILT_IN size_t __cvta_generic_to_global(const void *p) { return reinterpret_cast<size_t>(p); }
KW_BUILT_IN bool __isLocal(const void *p) {
  const auto *stack = static_cast<const char *>(kw_current->stack);
  return p >= stack && p < stack + kw::emulator::kStack;
}
