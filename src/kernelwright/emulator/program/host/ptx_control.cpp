// PTX control flow, and known instructions that are not emulated.
#include "ptx.h"

namespace kw::ptx {
namespace {

void bra(const Instruction &i, Frame &f) {
  const int to = static_cast<int>(i.args[0].number);
  if (to < f.next) kw_yield();  // it may wait for another thread
  f.next = to;
}
void nothing(const Instruction &, Frame &) {}
void pause(const Instruction &, Frame &) { kw_yield(); }
void trap(const Instruction &i, Frame &f) { kw_fail_at(f.where, "PTX `%s`", i.text.c_str()); }

struct Refusal {
  const char *begins, *why;
};
constexpr Refusal kRefused[] = {
    {"wgmma", "this form of warpgroup matrix products (wgmma) has no emulation"},
    {"cp.async.bulk", "this form of bulk copies (TMA) has no emulation"},
    {"cp.reduce.async.bulk", "this form of bulk copies (TMA) has no emulation"},
    {"tensormap", "tensor maps that kernels change have no emulation"},
    {"multimem", "multicast memory has no emulation yet"},
    {"tcgen05", "tensor memory of compute capability 10 has no emulation yet"},
    {"mma.sp", "sparse matrix products have no emulation"},
    {"wmma", "write nvcuda::wmma of mma.h, which is emulated"},
};

}  // namespace

const char *refused(const std::string &text) {
  for (const Refusal &r : kRefused)
    if (text.rfind(r.begins, 0) == 0) return r.why;
  return nullptr;
}

Act control(Instruction &i) {
  const std::string &op = i.words[0];
  if (op == "bra") return i.args.size() == 1 && i.args[0].kind == Arg::kLabel ? bra : nullptr;
  if (op == "nanosleep" || op == "yield") return pause;
  if (op == "trap" || op == "brkpt") return op == "trap" ? trap : nothing;
  if (op == "griddepcontrol" || op == "setmaxnreg" || op == "pmevent") return nothing;
  return nullptr;
}

}  // namespace kw::ptx
