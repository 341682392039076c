// Which forms of each PTX instruction are emulated. A modifier, a type, a number of operands or a
// literal that is not listed here is an error: nothing is ignored by accident.
#include <map>
#include <sstream>

#include "ptx.h"

namespace kw::ptx {
namespace {

struct Form {
  const char *types, *words;  // separated by spaces
  unsigned least, most;       // operands; `p|q` are two
};

#define INTEGERS "u16 u32 u64 s16 s32 s64 "
#define HALVES "f16 f16x2 bf16 bf16x2 "
#define BITS "b16 b32 b64 "
#define ROUNDED "rn rz rm rp ftz "
#define SPACE "global local shared shared::cta shared::cluster "
#define ORDER "weak volatile relaxed acquire release acq_rel cta cluster gpu sys mmio "
#define CACHE                                                                                    \
  "ca cg cs lu cv wb wt nc L1::evict_normal L1::evict_unchanged L1::evict_first L1::evict_last " \
  "L1::no_allocate L2::cache_hint L2::64B L2::128B L2::256B L2::evict_last L2::evict_first "     \
  "L2::evict_normal "

const std::multimap<std::string, Form> kForms = {
    {"add", {INTEGERS "u16x2 s16x2", "", 3, 3}},
    {"add", {"s32", "sat", 3, 3}},
    {"add", {"f32 f64 f32x2", ROUNDED, 3, 3}},
    {"add", {"f32", ROUNDED "sat", 3, 3}},
    {"add", {HALVES, "rn ftz sat", 3, 3}},
    {"sub", {INTEGERS, "", 3, 3}},
    {"sub", {"s32", "sat", 3, 3}},
    {"sub", {"f32 f64 f32x2", ROUNDED, 3, 3}},
    {"sub", {"f32", ROUNDED "sat", 3, 3}},
    {"sub", {HALVES, "rn ftz sat", 3, 3}},
    {"mul", {INTEGERS, "hi lo", 3, 3}},
    {"mul", {"u16 u32 s16 s32", "wide", 3, 3}},
    {"mul", {"f32 f64 f32x2", ROUNDED, 3, 3}},
    {"mul", {"f32", ROUNDED "sat", 3, 3}},
    {"mul", {HALVES, "rn ftz sat", 3, 3}},
    {"mad", {INTEGERS, "hi lo", 4, 4}},
    {"mad", {"u16 u32 s16 s32", "wide", 4, 4}},
    {"mad", {"f32", ROUNDED "sat", 4, 4}},
    {"mad", {"f64", ROUNDED, 4, 4}},
    {"fma", {"f32", ROUNDED "sat", 4, 4}},
    {"fma", {"f64 f32x2", ROUNDED, 4, 4}},
    {"fma", {HALVES, "rn ftz sat relu", 4, 4}},
    {"div", {INTEGERS, "", 3, 3}},
    {"div", {"f32", ROUNDED "approx full", 3, 3}},
    {"div", {"f64", ROUNDED, 3, 3}},
    {"rem", {INTEGERS, "", 3, 3}},
    {"min", {INTEGERS "u16x2 s16x2", "", 3, 3}},
    {"min", {"f32 f64 " HALVES, "ftz NaN", 3, 3}},
    {"max", {INTEGERS "u16x2 s16x2", "", 3, 3}},
    {"max", {"f32 f64 " HALVES, "ftz NaN", 3, 3}},
    {"neg", {"s16 s32 s64", "", 2, 2}},
    {"neg", {"f32 f64 " HALVES, "ftz", 2, 2}},
    {"abs", {"s16 s32 s64", "", 2, 2}},
    {"abs", {"f32 f64 " HALVES, "ftz", 2, 2}},
    {"rcp", {"f32", ROUNDED "approx", 2, 2}},
    {"rcp", {"f64", ROUNDED, 2, 2}},
    {"sqrt", {"f32", ROUNDED "approx", 2, 2}},
    {"sqrt", {"f64", ROUNDED, 2, 2}},
    {"rsqrt", {"f32", "approx ftz", 2, 2}},
    {"ex2", {"f32 " HALVES, "approx ftz", 2, 2}},
    {"lg2", {"f32", "approx ftz", 2, 2}},
    {"sin", {"f32", "approx ftz", 2, 2}},
    {"cos", {"f32", "approx ftz", 2, 2}},
    {"tanh", {"f32 " HALVES, "approx", 2, 2}},
    {"and", {BITS "pred", "", 3, 3}},
    {"or", {BITS "pred", "", 3, 3}},
    {"xor", {BITS "pred", "", 3, 3}},
    {"not", {BITS "pred", "", 2, 2}},
    {"cnot", {BITS, "", 2, 2}},
    {"shl", {BITS, "", 3, 3}},
    {"shr", {BITS INTEGERS, "", 3, 3}},
    {"sad", {INTEGERS, "", 4, 4}},
    {"popc", {"b32 b64", "", 2, 2}},
    {"clz", {"b32 b64", "", 2, 2}},
    {"brev", {"b32 b64", "", 2, 2}},
    {"bfind", {"u32 u64 s32 s64", "shiftamt", 2, 2}},
    {"mul24", {"u32 s32", "hi lo", 3, 3}},
    {"mad24", {"u32 s32", "hi lo", 4, 4}},
    {"copysign", {"f32 f64", "", 3, 3}},
    {"mov", {BITS INTEGERS "f32 f64 pred", "", 2, 2}},
    {"setp",
     {BITS INTEGERS "f32 f64 f16 bf16",
      "eq ne lt le gt ge lo ls hi hs equ neu ltu leu gtu geu num nan and or xor ftz", 3, 5}},
    {"selp", {BITS INTEGERS "f32 f64", "", 4, 4}},
    {"lop3", {"b32", "", 5, 5}},
    {"prmt", {"b32", "f4e b4e rc8 ecl ecr rc16", 4, 4}},
    {"bfe", {"u32 u64 s32 s64", "", 4, 4}},
    {"bfi", {"b32 b64", "", 5, 5}},
    {"shf", {"b32", "l r clamp wrap", 4, 4}},
    {"dp4a", {"u32 s32", "", 4, 4}},
    {"cvt",
     {BITS INTEGERS "u8 s8 f32 f64 tf32 e4m3x2 e5m2x2 " HALVES,
      "rni rzi rmi rpi rn rz rm rp rna ftz sat relu satfinite", 2, 3}},
    {"ld", {"b8 u8 s8 f32 f64 " BITS INTEGERS, SPACE "const unified v2 v4 v8 " ORDER CACHE, 2, 3}},
    {"ldu", {"b8 u8 s8 f32 f64 " BITS INTEGERS, "global v2 v4", 2, 2}},
    {"st", {"b8 u8 s8 f32 f64 " BITS INTEGERS, SPACE "v2 v4 v8 " ORDER CACHE, 2, 3}},
    {"atom",
     {"b16 b32 b64 u32 u64 s32 s64 f32 f64 " HALVES,
      SPACE "v2 v4 v8 add and or xor cas exch inc dec min max noftz L2::cache_hint " ORDER, 3, 5}},
    {"red",
     {"b32 b64 u32 u64 s32 s64 f32 f64 " HALVES,
      SPACE "v2 v4 v8 add and or xor inc dec min max noftz L2::cache_hint " ORDER, 2, 3}},
    {"cvta", {"u32 u64", SPACE "to const", 2, 2}},
    {"isspacep", {"", "global shared shared::cta", 2, 2}},
    {"mapa", {"u32", "shared::cluster", 3, 3}},
    {"mbarrier", {"b64", "init inval shared shared::cta", 1, 2}},
    {"mbarrier", {"b64", "expect_tx complete_tx relaxed cta cluster shared shared::cta", 2, 2}},
    {"mbarrier",
     {"b64",
      "arrive arrive_drop expect_tx noComplete release relaxed cta cluster shared shared::cta "
      "shared::cluster",
      1, 3}},
    {"mbarrier",
     {"b64", "test_wait try_wait parity acquire relaxed cta cluster shared shared::cta", 3, 4}},
    {"mbarrier", {"b64", "pending_count", 2, 2}},
    {"shfl", {"b32", "sync up down bfly idx", 5, 6}},
    {"vote", {"b32 pred", "sync ballot any all uni", 2, 3}},
    {"match", {"b32 b64", "sync any all", 3, 4}},
    {"redux", {"u32 s32 b32", "sync add min max and or xor", 3, 3}},
    {"elect", {"", "sync", 3, 3}},
    {"activemask", {"b32", "", 1, 1}},
    {"bar", {"u32 pred", "sync arrive red popc and or warp cta", 0, 4}},
    {"barrier",
     {"u32 pred", "sync arrive red popc and or cta aligned cluster wait relaxed release acquire", 0,
      4}},
    {"ldmatrix", {"b16", "sync aligned m8n8 x1 x2 x4 trans shared shared::cta", 2, 2}},
    {"stmatrix", {"b16", "sync aligned m8n8 x1 x2 x4 trans shared shared::cta", 2, 2}},
    {"movmatrix", {"b16", "sync aligned m8n8 trans", 2, 2}},
    {"bra", {"", "uni", 1, 1}},
};

bool listed(const char *list, const std::string &word) {
  std::istringstream all(list);
  for (std::string one; all >> one;)
    if (one == word) return true;
  return false;
}
// The modifier or type that a form does not have; empty if there is none.
std::string unknown(const Form &form, const Instruction &i) {
  for (std::size_t k = 1; k < i.words.size(); ++k) {
    Type t;
    if (!listed(type_of(i.words[k], &t) ? form.types : form.words, i.words[k]))
      return "." + i.words[k];
  }
  const std::size_t n = i.args.size();
  return n < form.least || n > form.most ? std::to_string(n) + " operands" : "";
}

// What a literal is by itself, and as an operand of a type.
std::string literal(Arg &a, Type t) {
  if (a.kind == Arg::kVector || a.address) {
    for (Arg &part : a.parts)
      if (std::string why = literal(part, a.address ? Type{'s', 64, false} : t); !why.empty())
        return why;
    if (a.kind == Arg::kVector || a.kind != Arg::kNumber) return "";
    t = {'s', 64, false};
  }
  if (a.kind == Arg::kLabel) return "the name " + a.name;
  if (a.kind != Arg::kNumber) return "";
  const bool single = a.literal == Arg::kSingleBits, whole = a.literal == Arg::kInteger;
  if (t.kind == 'f' && !t.pair && t.bits >= 32) {
    if (whole) return "an integer for ." + std::string(t.bits == 32 ? "f32" : "f64");
    if (t.bits == 32)
      a.number = single ? a.number : to_bits(static_cast<float>(from_bits<double>(a.number)));
    else if (single)
      return "bits of .f32 for .f64";
    return "";
  }
  if (t.floating() || t.kind == '4' || t.kind == '5') return "a literal of its type";
  const bool bits = t.kind == 'b' &&
                    ((single && t.bits == 32) || (a.literal == Arg::kDoubleBits && t.bits == 64));
  return whole || bits ? "" : "a floating-point number for an integer";
}

std::string vectors(const Instruction &i) {
  const std::string &op = i.words[0];
  if (op != "ld" && op != "st" && op != "atom" && op != "red") return "";
  const std::size_t n = i.has("v2") ? 2 : i.has("v4") ? 4 : i.has("v8") ? 8 : 1;
  for (const Arg &a : i.args)
    if (!a.address && a.kind == Arg::kVector && a.parts.size() != n)
      return "a vector of " + std::to_string(a.parts.size());
  const Arg &data = i.args[op == "st" || op == "red" ? 1 : 0];
  return n > 1 && data.kind != Arg::kVector ? "a vector of 1" : "";
}

// What only some combinations of words have.
std::string combination(const Instruction &i) {
  const std::string &op = i.words[0];
  const Type t = i.type();
  if (op == "cvt") {
    const Type to = i.types[0], from = i.types.back();
    const bool directed = i.has("rm") || i.has("rp");
    if (i.types.size() != 2) return "one type";
    if (directed && to.floating() && to.bits == 16) return i.has("rm") ? ".rm" : ".rp";
    if (i.has("satfinite") && to.kind != '4' && to.kind != '5') return ".satfinite";
    if (i.has("rna") && to.kind != 't') return ".rna";
    if (to.pair && !from.pair && i.args.size() != 3) return "2 operands";
    if (!to.pair && i.args.size() != 2) return "3 operands";
  } else if (i.types.size() > 1 && op != "dp4a" && op != "mma") {
    return "several types";
  }
  const bool integer = !t.floating() && t.kind != 'p';
  if (integer && (op == "mul" || op == "mad" || op == "mul24" || op == "mad24") && !i.has("hi") &&
      !i.has("lo") && !i.has("wide"))
    return "neither .hi nor .lo nor .wide";
  if (op == "setp") {
    const bool two = i.text.find('|') != std::string::npos;
    const bool joined = i.has("and") || i.has("or") || i.has("xor");
    if (i.args.size() != std::size_t(3 + two + joined) || i.words.size() < 3)
      return std::to_string(i.args.size()) + " operands";
  }
  if (op == "atom" && i.has("cas") != (i.args.size() > 3) && !i.has("L2::cache_hint"))
    return std::to_string(i.args.size()) + " operands";
  if ((op == "atom" || op == "red") && t.floating() && t.bits >= 32 && !i.has("add") &&
      !i.has("exch"))
    return "this operation of ." + i.words.back();
  return "";
}

}  // namespace

std::string wrong_form(Instruction &i) {
  const auto [first, last] = kForms.equal_range(i.words[0]);
  std::string why;
  if (first == last) {
    const Type size = {'s', 64, false};
    for (std::size_t k = 0; why.empty() && k < i.args.size(); ++k) why = literal(i.args[k], size);
    return why.empty() || refused(i.name) ? "" : "an operand is " + why;
  }
  for (auto form = first; form != last; ++form) {
    const std::string one = unknown(form->second, i);
    if (one.empty()) {
      why.clear();
      break;
    }
    if (why.empty() || one[0] != '.') why = one;  // the nearest form differs in its operands only
  }
  if (why.empty()) why = combination(i);
  if (why.empty()) why = vectors(i);
  for (std::size_t k = 0; why.empty() && k < i.args.size() && i.words[0] != "bra"; ++k)
    why = literal(i.args[k], i.type());
  if (why.empty()) return "";
  return why.rfind("the name", 0) ? "it has no form with " + why : why + " is not declared";
}

}  // namespace kw::ptx
