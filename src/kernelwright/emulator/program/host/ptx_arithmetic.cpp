// PTX arithmetic: integers, floating-point numbers, bits, conversions, comparisons.
#include <algorithm>
#include <cfenv>
#include <map>

#include "ptx.h"

#include "emulator/sixteen_bits.h"
#include "program/device_api.h"
#include "program/small_floats.h"

namespace kw::ptx {

double number(Type t, u64 bits) {
  switch (t.kind) {
    case 'h':
      return emulator::bfloat_value(static_cast<unsigned short>(bits));
    case 't':
      return from_bits<float>(bits);
    case '4':
      return e4m3_value(static_cast<unsigned char>(bits));
    case '5':
      return e5m2_value(static_cast<unsigned char>(bits));
    default:
      return t.bits == 16   ? emulator::half_value(static_cast<unsigned short>(bits))
             : t.bits == 32 ? from_bits<float>(bits)
                            : from_bits<double>(bits);
  }
}
u64 bits_of_number(Type t, double x) {
  switch (t.kind) {
    case 'h':
      return emulator::bfloat_bits(x);
    case 't':
      return to_bits(static_cast<float>(x));
    case '4':
      return e4m3_bits(x);
    case '5':
      return e5m2_bits(x);
    default:
      return t.bits == 16   ? emulator::half_bits(x)
             : t.bits == 32 ? to_bits(static_cast<float>(x))
                            : to_bits(x);
  }
}

namespace {

int direction(const Instruction &i) {
  return i.has("rm") ? -1 : i.has("rp") ? 1 : i.has("rz") ? 0 : 2;
}

// What an operation gives if results are rounded as an instruction says. The compiler knows of no
// rounding but to the nearest number: neither operands nor result may be known to it.
template <typename F> auto directed(const Instruction &i, F operation) {
  const int d = direction(i);
  std::fesetround(d == 2 ? FE_TONEAREST : d < 0 ? FE_DOWNWARD : d > 0 ? FE_UPWARD : FE_TOWARDZERO);
  volatile auto result = operation();
  std::fesetround(FE_TONEAREST);
  return static_cast<decltype(operation())>(result);
}
template <typename T> T exactly(const Instruction &i, T a, T b, T c) {
  volatile T x = a, y = b, z = c;
  const std::string &op = i.words[0];
  return directed(i, [&]() -> T {
    if (op == "add") return x + y;
    if (op == "sub") return x - y;
    if (op == "mul") return x * y;
    if (op == "fma" || op == "mad") return std::fma(T(x), T(y), T(z));
    if (op == "div") return x / y;
    if (op == "rcp") return 1 / x;
    return std::sqrt(T(x));
  });
}

float flushed(float x, bool ftz) {
  return ftz && std::fabs(x) < 0x1p-126f ? std::copysign(0.0f, x) : x;
}

// Applies `act` to the value or to both halves.
template <typename F> u64 halves(Type t, const u64 *in, F act) {
  if (!t.pair) return act(in[0], in[1], in[2]);
  const unsigned b = t.bits;
  const u64 low = act(masked(in[0], b), masked(in[1], b), masked(in[2], b));
  const u64 high = act(in[0] >> b, in[1] >> b, in[2] >> b);
  return masked(low, b) | high << b;
}

u64 float_result(const Instruction &i, Type t, double exact, float rounded) {
  if (t.kind == 'f' && t.bits == 32) {
    float x = flushed(rounded, i.has("ftz"));
    if (i.has("sat")) x = x > 0 ? (x < 1 ? x : 1) : 0;
    return to_bits(x);
  }
  if (i.has("sat")) exact = exact > 0 ? (exact < 1 ? exact : 1) : 0;
  if (i.has("relu") && exact < 0) exact = 0;
  return bits_of_number(t, exact);
}

u64 float_op(const Instruction &i, Type t, u64 a, u64 b, u64 c) {
  const bool ftz = i.has("ftz"), single = t.bits == 32;
  const auto value = [&](u64 bits) {
    const double x = number(t, bits);
    return single ? flushed(static_cast<float>(x), ftz) : x;
  };
  const double x = value(a), y = value(b), z = value(c);
  const float fx = static_cast<float>(x), fy = static_cast<float>(y), fz = static_cast<float>(z);
  const std::string &op = i.words[0];
  if (direction(i) != 2)
    return t.bits == 64 ? to_bits(exactly(i, x, y, z))
                        : float_result(i, t, 0, exactly(i, fx, fy, fz));
  if (op == "add") return float_result(i, t, x + y, fx + fy);
  if (op == "sub") return float_result(i, t, x - y, fx - fy);
  if (op == "mul") return float_result(i, t, x * y, fx * fy);
  if (op == "fma" || op == "mad")
    return float_result(i, t, t.bits == 64 ? std::fma(x, y, z) : emulator::fused(x, y, z),
                        std::fmaf(fx, fy, fz));
  if (op == "div") return float_result(i, t, x / y, fx / fy);
  if (op == "min" || op == "max") {
    if (x != x || y != y) {
      if (i.has("NaN") || (x != x && y != y))
        return t.bits == 16 ? 0x7fff : single ? 0x7fffffffu : 0x7fffffffffffffffull;
      return x != x ? b : a;
    }
    if (x == 0 && y == 0) return (op == "min") == (std::signbit(x)) ? a : b;
    return (op == "min") == (x < y) ? a : b;
  }
  if (op == "neg") return a ^ u64(1) << (t.bits - 1);
  if (op == "abs") return a & ~(u64(1) << (t.bits - 1));
  if (op == "rcp") return float_result(i, t, 1 / x, 1 / fx);
  if (op == "sqrt") return float_result(i, t, std::sqrt(x), std::sqrt(fx));
  if (op == "rsqrt") return float_result(i, t, 1 / std::sqrt(x), float(1 / std::sqrt(x)));
  if (op == "ex2") return float_result(i, t, std::exp2(x), float(std::exp2(x)));
  if (op == "lg2") return float_result(i, t, std::log2(x), float(std::log2(x)));
  if (op == "sin") return float_result(i, t, std::sin(x), float(std::sin(x)));
  if (op == "cos") return float_result(i, t, std::cos(x), float(std::cos(x)));
  if (op == "tanh") return float_result(i, t, std::tanh(x), float(std::tanh(x)));
  const u64 sign = u64(1) << (t.bits - 1);  // copysign: b with the sign of a
  return (b & ~sign) | (a & sign);
}

u64 integer_op(const Instruction &i, Type t, u64 a, u64 b, u64 c) {
  const bool s = t.kind == 's';
  const auto n = t.bits;
  const std::int64_t sa = extended(a, n), sb = extended(b, n);
  const u64 ua = masked(a, n), ub = masked(b, n);
  const std::string &op = i.words[0];
  if (op == "add") {
    if (i.has("sat")) return std::clamp<std::int64_t>(sa + sb, INT32_MIN, INT32_MAX);
    return a + b;
  }
  if (op == "sub") {
    if (i.has("sat")) return std::clamp<std::int64_t>(sa - sb, INT32_MIN, INT32_MAX);
    return a - b;
  }
  if (op == "mul" || op == "mad" || op == "mul24" || op == "mad24") {
    __int128 product = s ? __int128(sa) * sb : __int128(static_cast<unsigned __int128>(ua) * ub);
    if (op.size() == 5)
      product =
          s ? __int128(extended(a, 24)) * extended(b, 24) : __int128(masked(a, 24) * masked(b, 24));
    if (i.has("hi"))
      product = op.size() == 5 ? product >> 16  // the upper 32 bits of 48
                : s            ? product >> n
                               : __int128(static_cast<unsigned __int128>(product) >> n);
    return static_cast<u64>(product) + (op[1] == 'a' ? c : 0);
  }
  if (op == "div") return !ub ? ~u64(0) : s ? (sb == -1 ? -sa : sa / sb) : ua / ub;
  if (op == "rem") return !ub ? ua : s ? (sb == -1 ? 0 : sa % sb) : ua % ub;
  if (op == "min") return s ? std::min(sa, sb) : std::min(ua, ub);
  if (op == "max") return s ? std::max(sa, sb) : std::max(ua, ub);
  if (op == "neg") return -a;
  if (op == "abs") return sa < 0 ? -sa : sa;
  if (op == "and") return a & b;
  if (op == "or") return a | b;
  if (op == "xor") return a ^ b;
  if (op == "not") return t.kind == 'p' ? !a : ~a;
  if (op == "cnot") return ua == 0;
  if (op == "shl") return masked(b, 32) >= n ? 0 : a << masked(b, 32);
  if (op == "shr") {
    const u64 by = std::min<u64>(masked(b, 32), n);
    if (s) return sa >> std::min<u64>(by, 63);
    return by >= 64 ? 0 : ua >> by;
  }
  if (op == "sad") return c + (s ? std::abs(sa - sb) : ua > ub ? ua - ub : ub - ua);
  if (op == "popc") return __builtin_popcountll(ua);
  if (op == "clz") return ua ? __builtin_clzll(ua) - (64 - n) : n;
  if (op == "brev") {
    u64 result = 0;
    for (unsigned k = 0; k < n; ++k) result |= (a >> k & 1) << (n - 1 - k);
    return result;
  }
  // bfind
  u64 x = s && sa < 0 ? masked(~a, n) : ua;
  if (!x) return ~0u;
  const u64 top = 63 - __builtin_clzll(x);
  return i.has("shiftamt") ? n - 1 - top : top;
}

void plain(const Instruction &i, Frame &f) {
  const Type t = i.type();
  u64 in[3] = {};
  for (std::size_t k = 1; k < i.args.size() && k < 4; ++k) in[k - 1] = f.get(i.args[k]);
  const u64 result = halves(t, in, [&](u64 a, u64 b, u64 c) {
    return t.floating() ? float_op(i, t, a, b, c) : integer_op(i, t, a, b, c);
  });
  const unsigned bits = i.has("wide") ? t.bits * 2 : t.bits * (t.pair ? 2 : 1);
  const bool counts = i.words[0] == "popc" || i.words[0] == "clz" || i.words[0] == "bfind";
  f.set(i.args[0], masked(result, counts ? 32 : std::min(bits, 64u)));
}

void mov(const Instruction &i, Frame &f) {
  const Arg &to = i.args[0], &from = i.args[1];
  const unsigned bits = i.type().bits;
  if (to.kind == Arg::kVector) {  // unpack
    const unsigned each = bits / to.parts.size();
    for (std::size_t k = 0; k < to.parts.size(); ++k)
      f.set(to.parts[k], masked(f.get(from) >> each * k, each));
  } else if (from.kind == Arg::kVector) {
    const unsigned each = bits / from.parts.size();
    u64 result = 0;
    for (std::size_t k = 0; k < from.parts.size(); ++k)
      result |= masked(f.get(from.parts[k]), each) << each * k;
    f.set(to, result);
  } else {
    f.set(to, masked(f.get(from), std::max(bits, 1u)));
  }
}

bool compares(const std::string &op, Type t, u64 a, u64 b, bool ftz) {
  if (t.floating()) {
    double x = number(t, a), y = number(t, b);
    if (t.bits == 32) x = flushed(float(x), ftz), y = flushed(float(y), ftz);
    const bool nan = x != x || y != y;
    if (op == "num") return !nan;
    if (op == "nan") return nan;
    const bool unordered = op.size() == 3;
    const std::string base = op.substr(0, 2);
    if (nan) return unordered;
    return base == "eq"   ? x == y
           : base == "ne" ? x != y
           : base == "lt" ? x < y
           : base == "le" ? x <= y
           : base == "gt" ? x > y
                          : x >= y;
  }
  const std::int64_t sa = extended(a, t.bits), sb = extended(b, t.bits);
  const u64 ua = masked(a, t.bits), ub = masked(b, t.bits);
  const bool s = t.kind == 's';
  if (op == "eq") return ua == ub;
  if (op == "ne") return ua != ub;
  if (op == "lt") return s ? sa < sb : ua < ub;
  if (op == "le") return s ? sa <= sb : ua <= ub;
  if (op == "gt") return s ? sa > sb : ua > ub;
  if (op == "ge") return s ? sa >= sb : ua >= ub;
  return op == "lo" ? ua < ub : op == "ls" ? ua <= ub : op == "hi" ? ua > ub : ua >= ub;
}
void setp(const Instruction &i, Frame &f) {
  std::size_t first = 1;
  const bool two = i.text.find('|') != std::string::npos;
  if (two) first = 2;
  bool yes =
      compares(i.words[1], i.type(), f.get(i.args[first]), f.get(i.args[first + 1]), i.has("ftz"));
  bool no = !yes;
  if (i.args.size() > first + 2) {
    const bool with = f.get(i.args[first + 2]) & 1;
    const auto join = [&](bool x) {
      return i.words[2] == "and" ? x && with : i.words[2] == "or" ? x || with : x != with;
    };
    yes = join(yes), no = join(no);
  }
  f.set(i.args[0], yes);
  if (two) f.set(i.args[1], no);
}
void selp(const Instruction &i, Frame &f) {
  f.set(i.args[0], f.get(i.args[3]) & 1 ? f.get(i.args[1]) : f.get(i.args[2]));
}

void lop3(const Instruction &i, Frame &f) {
  const u32 a = f.get(i.args[1]), b = f.get(i.args[2]), c = f.get(i.args[3]), t = f.get(i.args[4]);
  u32 result = 0;
  for (int k = 0; k < 8; ++k)
    if (t >> k & 1) result |= (k & 4 ? a : ~a) & (k & 2 ? b : ~b) & (k & 1 ? c : ~c);
  f.set(i.args[0], result);
}
void prmt(const Instruction &i, Frame &f) {
  const u32 a = f.get(i.args[1]), b = f.get(i.args[2]);
  u32 c = f.get(i.args[3]);
  const u32 n = c & 3;
  if (i.has("f4e")) c = (n + 3) << 12 | (n + 2) << 8 | (n + 1) << 4 | n;
  if (i.has("b4e")) c = ((n + 5) & 7) << 12 | ((n + 6) & 7) << 8 | ((n + 7) & 7) << 4 | n;
  if (i.has("rc8")) c = n * 0x1111;
  if (i.has("ecl")) c = std::max(3u, n) << 12 | std::max(2u, n) << 8 | std::max(1u, n) << 4 | n;
  if (i.has("ecr")) c = n << 12 | std::min(2u, n) << 8 | std::min(1u, n) << 4;
  if (i.has("rc16")) c = n & 1 ? 0x3232 : 0x1010;
  f.set(i.args[0], __byte_perm(a, b, c));
}
void bfe(const Instruction &i, Frame &f) {
  const Type t = i.type();
  const u64 a = f.get(i.args[1]);
  const u32 at = f.get(i.args[2]) & 0xff, length = f.get(i.args[3]) & 0xff;
  u64 result = at >= t.bits ? 0 : masked(a, t.bits) >> at;
  if (length < 64) result = masked(result, length);
  if (t.kind == 's' && length) {
    const u32 sign = std::min(at + length - 1, t.bits - 1);
    if (a >> sign & 1 && length < 64) {
      const u32 have = sign >= at ? sign - at + 1 : 0;
      result |= have < 64 ? ~u64(0) << have : 0;
    }
  }
  f.set(i.args[0], masked(result, t.bits));
}
void bfi(const Instruction &i, Frame &f) {
  const Type t = i.type();
  const u32 at = f.get(i.args[3]) & 0xff, length = f.get(i.args[4]) & 0xff;
  u64 field = length >= 64 ? ~u64(0) : (u64(1) << length) - 1;
  field = at >= 64 ? 0 : field << at;
  const u64 a = at >= 64 ? 0 : f.get(i.args[1]) << at;
  f.set(i.args[0], masked((a & field) | (f.get(i.args[2]) & ~field), t.bits));
}
void shf(const Instruction &i, Frame &f) {
  const u64 both = masked(f.get(i.args[1]), 32) | f.get(i.args[2]) << 32;
  u32 by = f.get(i.args[3]);
  by = i.has("clamp") ? std::min(by, 32u) : by & 31;
  f.set(i.args[0],
        masked(i.has("l") ? (by == 32 ? both << 32 : both << by) >> 32 : both >> by, 32));
}
void dp4a(const Instruction &i, Frame &f) {
  const u32 a = f.get(i.args[1]), b = f.get(i.args[2]);
  u32 sum = f.get(i.args[3]);
  const bool sa = i.types[0].kind == 's', sb = i.types.back().kind == 's';
  for (int k = 0; k < 32; k += 8) {
    const int x = sa ? static_cast<signed char>(a >> k) : static_cast<int>(a >> k & 0xff);
    const int y = sb ? static_cast<signed char>(b >> k) : static_cast<int>(b >> k & 0xff);
    sum += x * y;
  }
  f.set(i.args[0], sum);
}

double rounded_to_integer(const Instruction &i, double x) {
  return i.has("rni")   ? std::rint(x)
         : i.has("rmi") ? std::floor(x)
         : i.has("rpi") ? std::ceil(x)
                        : std::trunc(x);
}
u64 narrowed(const Instruction &i, Type to, double x) {
  if (i.has("relu") && !(x > 0)) x = x != x ? x : 0;
  if (i.has("sat") && to.floating()) x = x > 0 ? (x < 1 ? x : 1) : 0;
  const bool truncate = i.has("rz");
  if (to.kind == 't') {  // 10 bits of mantissa; of two nearest numbers, rna takes the larger one
    u32 bits = static_cast<u32>(to_bits(static_cast<float>(x)));
    const u32 half = i.has("rna") ? 0x1000u : 0xfffu + (bits >> 13 & 1);
    if (x == x && !std::isinf(x)) bits = (truncate ? bits : bits + half) & ~0x1fffu;
    return bits;
  }
  if (to.kind == 'f' && to.bits == 32) {
    const int d = direction(i);
    return to_bits(flushed(d == 2 ? static_cast<float>(x) : program::narrow(x, d), i.has("ftz")));
  }
  if (truncate && to.bits == 16 && x == x) {  // the next value towards zero
    u64 bits = bits_of_number(to, x);
    if (std::fabs(number(to, bits)) > std::fabs(x)) --bits;
    return bits;
  }
  return bits_of_number(to, x);
}
void cvt(const Instruction &i, Frame &f) {
  const Type to = i.types[0], from = i.types.back();
  const u64 a = f.get(i.args[1]);
  if (to.pair && i.args.size() > 2) {  // two numbers become a pair; the first is its upper half
    const u64 high = narrowed(i, to, number(from, a)),
              low = narrowed(i, to, number(from, f.get(i.args[2])));
    return f.set(i.args[0], masked(low, to.bits) | masked(high, to.bits) << to.bits);
  }
  if (to.pair && from.pair) {
    const u64 low = narrowed(i, to, number(from, masked(a, from.bits)));
    const u64 high = narrowed(i, to, number(from, masked(a >> from.bits, from.bits)));
    return f.set(i.args[0], masked(low, to.bits) | masked(high, to.bits) << to.bits);
  }
  if (from.floating() && to.floating()) {
    double x = number(from, a);
    if (i.has("rni") || i.has("rzi") || i.has("rmi") || i.has("rpi")) x = rounded_to_integer(i, x);
    return f.set(i.args[0], masked(narrowed(i, to, x), to.bits));
  }
  if (from.floating()) {
    const double value = number(from, a);
    const double x = rounded_to_integer(
        i, from.bits == 32 ? flushed(static_cast<float>(value), i.has("ftz")) : value);
    const bool s = to.kind == 's';
    const double low = s ? -std::ldexp(1.0, to.bits - 1) : 0, high = std::ldexp(1.0, to.bits - s);
    const u64 most = s ? (u64(1) << (to.bits - 1)) - 1 : masked(~u64(0), to.bits);
    const u64 result = x != x      ? 0
                       : x < low   ? (s ? u64(1) << (to.bits - 1) : 0)
                       : x >= high ? most
                       : s         ? static_cast<u64>(static_cast<std::int64_t>(x))
                                   : static_cast<u64>(x);
    return f.set(i.args[0], masked(result, to.bits));
  }
  const std::int64_t sx = from.kind == 's' ? extended(a, from.bits) : masked(a, from.bits);
  if (to.floating()) {
    const bool s = from.kind == 's';
    const u64 ux = static_cast<u64>(sx);
    volatile std::int64_t vs = sx;
    volatile u64 vu = ux;
    if (to.bits == 32)
      return f.set(i.args[0], to_bits(directed(i, [&] { return s ? float(vs) : float(vu); })));
    const double x = directed(i, [&] { return s ? double(vs) : double(vu); });
    return f.set(i.args[0], to.bits == 64 ? to_bits(x) : masked(narrowed(i, to, x), to.bits));
  }
  if (i.has("sat")) {
    const __int128 x = from.kind == 's' ? __int128(sx) : __int128(static_cast<u64>(sx));
    const bool s = to.kind == 's';
    const __int128 one = 1, most = (one << (to.bits - s)) - 1, least = s ? -most - 1 : __int128(0);
    return f.set(i.args[0], masked(static_cast<u64>(std::clamp(x, least, most)), to.bits));
  }
  f.set(i.args[0], masked(sx, to.bits));
}

}  // namespace

Act arithmetic(Instruction &i) {
  static const std::map<std::string, std::pair<Act, std::size_t>> known = {
      {"add", {plain, 3}},   {"sub", {plain, 3}},      {"mul", {plain, 3}},   {"mad", {plain, 4}},
      {"fma", {plain, 4}},   {"div", {plain, 3}},      {"rem", {plain, 3}},   {"min", {plain, 3}},
      {"max", {plain, 3}},   {"neg", {plain, 2}},      {"abs", {plain, 2}},   {"rcp", {plain, 2}},
      {"sqrt", {plain, 2}},  {"rsqrt", {plain, 2}},    {"ex2", {plain, 2}},   {"lg2", {plain, 2}},
      {"sin", {plain, 2}},   {"cos", {plain, 2}},      {"tanh", {plain, 2}},  {"and", {plain, 3}},
      {"or", {plain, 3}},    {"xor", {plain, 3}},      {"not", {plain, 2}},   {"cnot", {plain, 2}},
      {"shl", {plain, 3}},   {"shr", {plain, 3}},      {"sad", {plain, 4}},   {"popc", {plain, 2}},
      {"clz", {plain, 2}},   {"brev", {plain, 2}},     {"bfind", {plain, 2}}, {"mul24", {plain, 3}},
      {"mad24", {plain, 4}}, {"copysign", {plain, 3}}, {"mov", {mov, 2}},     {"setp", {setp, 3}},
      {"selp", {selp, 4}},   {"lop3", {lop3, 5}},      {"prmt", {prmt, 4}},   {"bfe", {bfe, 4}},
      {"bfi", {bfi, 5}},     {"shf", {shf, 4}},        {"dp4a", {dp4a, 4}},   {"cvt", {cvt, 2}},
  };
  const auto handler = known.find(i.words[0]);
  if (handler == known.end() || i.types.empty() || i.args.size() < handler->second.second)
    return nullptr;
  if (i.has("cc") || i.words[0] == "addc") return nullptr;  // carries
  if (handler->second.first == plain && !i.type().floating() && i.type().kind >= '4' &&
      i.type().kind <= '5')
    return nullptr;
  return handler->second.first;
}

}  // namespace kw::ptx
