// Replaces NVIDIA's header of the same name: cp.async by functions.
#pragma once

KW_BUILT_IN void __pipeline_memcpy_async(void *to, const void *from, size_t bytes,
                                         size_t zeros = 0) {
  KW_OTHERS_RAN;
  kw_async_copy(to, from, static_cast<unsigned>(bytes), static_cast<unsigned>(bytes - zeros));
}
KW_BUILT_IN void __pipeline_commit() { kw_async_commit(); }
KW_BUILT_IN void __pipeline_wait_prior(size_t groups) {
  kw_async_wait(static_cast<unsigned>(groups));
  KW_OTHERS_RAN;
}
