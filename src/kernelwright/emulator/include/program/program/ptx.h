// asm statements: their text is parsed once, and its instructions are executed by the runtime.
#pragma once

#pragma GCC visibility push(default)
namespace kw::ptx {

// An operand of an asm statement: %0, %1, ... in its text.
struct Operand {
  std::uint64_t value;  // its bits
  void *to;             // the variable that takes the result, or null
  unsigned bytes;       // of that variable
  char letter;          // h, r, l, f, d, n, q
  bool reads;
  bool later;  // `value` is read from `to` with the others, unless the statement leaves that out
};
struct Code;  // a parsed text
// Whether a statement's instructions change its operands later, and do not read them now.
bool asynchronous(const Code *);
const Code *parsed(const char *text, const char *file, int line);
void execute(const Code *, Operand *, unsigned count);

template <typename T> KW_BUILT_IN std::uint64_t bits_of(const T &value, char letter) {
  std::uint64_t bits = 0;
  if constexpr (std::is_pointer_v<T>) {
    bits = reinterpret_cast<std::uint64_t>(value);
  } else if constexpr (std::is_integral_v<T> || std::is_enum_v<T>) {
    bits = static_cast<std::uint64_t>(value);
  } else {
    if constexpr (std::is_floating_point_v<T>) {
      if (letter == 'f') {
        const float own = static_cast<float>(value);
        __builtin_memcpy(&bits, &own, sizeof own);
        return bits;
      }
      if (letter == 'd') {
        const double own = static_cast<double>(value);
        __builtin_memcpy(&bits, &own, sizeof own);
        return bits;
      }
    }
    __builtin_memcpy(&bits, &value, sizeof value < 8 ? sizeof value : 8);
  }
  return bits;
}
// "=r"(x): x is a variable; "r"(x): x is a value.
template <typename T> KW_BUILT_IN Operand operand(const char *constraint, T &&x) {
  using U = std::remove_reference_t<T>;
  if (constraint[0] == '=' || constraint[0] == '+') {
    const char letter = constraint[1] == '&' ? constraint[2] : constraint[1];
    const bool reads = constraint[0] == '+';
    const bool later = reads && (std::is_same_v<U, float> || std::is_same_v<U, unsigned>);
    return {reads && !later ? bits_of(x, letter) : 0,
            const_cast<void *>(static_cast<const volatile void *>(&x)),
            sizeof(U),
            letter,
            reads,
            later};
  }
  return {bits_of<std::decay_t<U>>(x, constraint[0]), nullptr, 0, constraint[0], true, false};
}
KW_BUILT_IN void read_now(const Code *code, Operand *all, unsigned count) {
  for (unsigned i = 0; i < count; ++i) {
    if (!all[i].later || asynchronous(code)) continue;
    unsigned bits;
    __builtin_memcpy(&bits, all[i].to, sizeof bits);
    all[i].value = bits;
  }
}
template <typename... O> KW_BUILT_IN void run(const Code *code, O... operands) {
  Operand all[sizeof...(O) + 1] = {operands..., {}};
  read_now(code, all, sizeof...(O));
  execute(code, all, sizeof...(O));
  for (const Operand &o : all)
    if (o.to) __builtin_memcpy(o.to, &o.value, o.bytes < 8 ? o.bytes : 8);
}

// A statement: each one has its own type for `text`.
template <typename Text, typename... O>
KW_BUILT_IN void statement(Text text, const char *file, int line, O... operands) {
  static const Code *const code = parsed(text(), file, line);
  KW_OTHERS_RAN;
  run(code, operands...);
  KW_OTHERS_RAN;
}

// ---- in the loops over a block's threads: an instruction of a warp

// What a lane provides; `to` of its operands are where it stores its variables.
struct Lane {
  emulator::Thread *thread;
  Operand *operands;
};
// Executes a statement for the 32 lanes of a warp.
void execute_together(const Code *, const Lane *, unsigned present, unsigned count);

template <unsigned N> struct Gathered {
  const Code *code;
  emulator::Thread *thread;
  Operand operands[N + 1];
  static void execute(Gathered *lanes, unsigned present, unsigned, bool) {
    Lane all[32] = {};
    for (unsigned left = present; left; left &= left - 1) {
      const unsigned i = __builtin_ctz(left);
      all[i] = {lanes[i].thread, lanes[i].operands};
    }
    execute_together(lanes[__builtin_ctz(present)].code, all, present, N);
    for (unsigned lane = 0; lane < 32; ++lane)
      for (const Operand &o : lanes[lane].operands)
        if (o.to) __builtin_memcpy(o.to, &o.value, o.bytes < 8 ? o.bytes : 8);
  }
};
template <typename Text, typename... O>
KW_BUILT_IN Gathered<sizeof...(O)> gathered(Text text, const char *file, int line, O... operands) {
  static const Code *const code = parsed(text(), file, line);
  Gathered<sizeof...(O)> lane = {code, kw_current, {operands..., {}}};
  read_now(code, lane.operands, sizeof...(O));
  return lane;
}

}  // namespace kw::ptx
#pragma GCC visibility pop

// asm statements as program/loops writes them.
#define KwPtx(text, ...) kw::ptx::statement([] { return text; }, __FILE__, __LINE__, ##__VA_ARGS__)
#define KwGather(text, ...) \
  kw::ptx::gathered([] { return text; }, __FILE__, __LINE__, ##__VA_ARGS__)
#define KwTo(constraint, x) kw::ptx::operand(constraint, *(x))
#define KwFrom(constraint, x) kw::ptx::operand(constraint, x)
