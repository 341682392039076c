// Parsed asm statements.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "host.h"
#include "program/ptx.h"

namespace kw::ptx {

using u32 = std::uint32_t;
using u64 = std::uint64_t;

// A type such as f32, b64, u8, f16x2, bf16x2, e4m3x2, pred. `kind`: f, h (bf16), t (tf32), u, s, b,
// p, 4 (e4m3), 5 (e5m2).
struct Type {
  char kind = 0;
  unsigned bits = 0;
  bool pair = false;
  unsigned bytes() const { return bits * (pair ? 2 : 1) / 8; }
  bool floating() const { return kind == 'f' || kind == 'h' || kind == 't'; }
};
bool type_of(const std::string &name, Type *known);

struct Arg {
  enum Kind { kSlot, kNumber, kSpecial, kVector, kLabel, kNone } kind = kNone;
  // How a number is written: 3, 1.5, 0f3fc00000, 0d3ff8000000000000.
  enum Literal { kInteger, kDecimal, kSingleBits, kDoubleBits } literal = kInteger;
  unsigned slot = 0;       // number of a register, operand or special register
  u64 number = 0;          // an immediate; the offset of an address
  bool address = false;    // it is in brackets
  bool inverted = false;   // negated: !p
  std::vector<Arg> parts;  // elements of a vector
  std::vector<Arg> box;    // an address's coordinates: [map, {x, y}]
  std::string name;        // a label's name
};

struct Instruction;
struct Gathering;
struct Frame {
  u64 *slots;
  const void *where;
  int next;              // the next instruction; jumps change it
  Gathering *gathering;  // of a warp whose lanes are executed one after the other, or null
  Operand *operands;
  void **held;  // the variables of operands that an asynchronous instruction changes later
  u64 get(const Arg &) const;
  void set(const Arg &, u64 value);
};
using Act = void (*)(const Instruction &, Frame &);

struct Instruction {
  std::string text, name;
  std::vector<std::string> words;  // the name's parts
  std::vector<Type> types;
  Arg guard;
  std::vector<Arg> args;
  Act act = nullptr;
  int plan[8] = {};                        // values that the act has computed in advance
  bool has(std::string_view word) const {  // inline, for words of known lengths
    for (const std::string &w : words)
      if (w.size() == word.size() && !__builtin_memcmp(w.data(), word.data(), word.size()))
        return true;
    return false;
  }
  bool begins(const char *words) const { return name.rfind(words, 0) == 0; }
  Type type() const { return types.empty() ? Type{'b', 32, false} : types.back(); }
};

constexpr unsigned kOperands = 144;  // a product of 256 columns has 128 registers of D

struct Code {
  std::vector<Instruction> instructions;
  unsigned slots = kOperands;
  unsigned operands = 0;  // that its text names
  bool products = false;  // it has wgmma.mma_async
  std::string wrong;      // the construct that is not emulated
  std::string why;
  const char *file;
  int line;
};

// Executes a statement for the current thread.
void execute(const Code *, Operand *, unsigned count, const void *where, Gathering *);

// The act of an instruction, or null if there is none. Each file has its own function.
Act arithmetic(Instruction &);
Act memory(Instruction &);
Act together(Instruction &);
Act control(Instruction &);
Act hopper(Instruction &);

// What a form of a known instruction has that is not emulated, or nothing. Literals get the bits of
// the operand's type.
std::string wrong_form(Instruction &);

// Why an instruction that is known is not emulated, or null.
const char *refused(const std::string &name);
u64 special(unsigned which);

// ---- values

template <typename T> T from_bits(u64 bits) {
  T x;
  __builtin_memcpy(&x, &bits, sizeof x);
  return x;
}
template <typename T> u64 to_bits(T x) {
  u64 bits = 0;
  __builtin_memcpy(&bits, &x, sizeof x);
  return bits;
}
inline u64 masked(u64 x, unsigned bits) { return bits >= 64 ? x : x & ((u64(1) << bits) - 1); }
inline std::int64_t extended(u64 x, unsigned bits) {
  return static_cast<std::int64_t>(x << (64 - bits)) >> (64 - bits);
}
// A floating-point value of 16, 32 or 64 bits.
double number(Type, u64 bits);
u64 bits_of_number(Type, double x);

}  // namespace kw::ptx
