// The PTX instructions that the CPU versions of the cluster functions in include/kw use, under the
// same names. An address is an offset in the block's shared memory, as on a GPU.
#pragma once

namespace kw::emulator {

KW_BUILT_IN int cluster_ctarank() { return static_cast<int>(kw_cluster_rank()); }
KW_BUILT_IN unsigned mapa(unsigned address, int rank) {
  return kw_mapa(address, static_cast<unsigned>(rank));
}

// barrier.cluster.arrive.relaxed and .wait.acquire
KW_BUILT_IN void cluster_arrive_relaxed() {
  KW_OTHERS_RAN;
  kw_cluster_arrive(true);
}
KW_BUILT_IN void cluster_arrive() {
  KW_OTHERS_RAN;
  kw_cluster_arrive(false);
}
KW_BUILT_IN void cluster_wait() {
  kw_cluster_wait();
  KW_OTHERS_RAN;
}

KW_BUILT_IN void mbarrier_init(unsigned address, unsigned count) {
  kw_mbarrier_init(address, count);
}
KW_BUILT_IN void fence_mbarrier_init() { kw_mbarrier_init_fence(); }
KW_BUILT_IN void mbarrier_arrive_expect_tx(unsigned address, unsigned bytes) {
  KW_OTHERS_RAN;
  kw_mbarrier_expect(address, bytes);
}
// mbarrier.try_wait.parity: returns once the phase of that parity has ended.
KW_BUILT_IN unsigned mbarrier_try_wait(unsigned address, unsigned parity) {
  kw_mbarrier_wait(address, parity);
  KW_OTHERS_RAN;
  return 1;
}
// st.async of 4 or 8 bytes, which the mbarrier counts.
template <typename Bits> KW_BUILT_IN void st_async(unsigned to, Bits bits, unsigned mbarrier) {
  KW_OTHERS_RAN;
  kw_send(to, bits, sizeof bits, mbarrier);
}

}  // namespace kw::emulator
