// asm statements: parsing, and the loop that executes them.
#include "ptx.h"

#include <ctype.h>

#include <algorithm>
#include <map>
#include <set>

namespace kw::ptx {
namespace {

const char *const kSpecials[] = {
    "laneid",
    "warpid",
    "nwarpid",
    "tid.x",
    "tid.y",
    "tid.z",
    "ntid.x",
    "ntid.y",
    "ntid.z",
    "ctaid.x",
    "ctaid.y",
    "ctaid.z",
    "nctaid.x",
    "nctaid.y",
    "nctaid.z",
    "smid",
    "nsmid",
    "gridid",
    "lanemask_eq",
    "lanemask_le",
    "lanemask_lt",
    "lanemask_ge",
    "lanemask_gt",
    "clock",
    "clock64",
    "clock_hi",
    "globaltimer",
    "globaltimer_lo",
    "cluster_ctarank",
    "cluster_nctarank",
    "dynamic_smem_size",
    "total_smem_size",
    "clusterid.x",
    "clusterid.y",
    "clusterid.z",
    "nclusterid.x",
    "nclusterid.y",
    "nclusterid.z",
    "cluster_ctaid.x",
    "cluster_ctaid.y",
    "cluster_ctaid.z",
    "cluster_nctaid.x",
    "cluster_nctaid.y",
    "cluster_nctaid.z",
    "is_explicit_cluster",
};

class Parser {
 public:
  Parser(const char *text, Code &code) : at_(text), code_(code) {}
  void run() {
    while (code_.wrong.empty()) {
      skip();
      if (!*at_) break;
      if (*at_ == '{' || *at_ == '}' || *at_ == ';') {
        ++at_;
        continue;
      }
      statement();
    }
    for (Instruction &i : code_.instructions)
      for (Arg &a : i.args)
        if (a.kind == Arg::kLabel) {
          const auto label = labels_.find(a.name);
          if (label != labels_.end())
            a.number = label->second;
          else if (i.words[0] == "bra")
            wrong(i.text);
        }
  }

 private:
  void wrong(const std::string &text, const std::string &why = "") {
    if (code_.wrong.empty()) code_.wrong = text, code_.why = why;
  }
  void skip() {
    for (;;) {
      while (isspace(static_cast<unsigned char>(*at_))) ++at_;
      if (at_[0] == '/' && at_[1] == '/')
        while (*at_ && *at_ != '\n') ++at_;
      else if (at_[0] == '/' && at_[1] == '*') {
        at_ += 2;
        while (*at_ && !(at_[0] == '*' && at_[1] == '/')) ++at_;
        if (*at_) at_ += 2;
      } else
        return;
    }
  }
  static bool in_name(char c) {
    return isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '$' || c == '.' || c == ':';
  }
  // A name with its dots; "::" belongs to it, ":" does not.
  std::string name() {
    const char *start = at_;
    while (in_name(*at_)) {
      if (*at_ == ':') {
        if (at_[1] != ':') break;
        ++at_;
      }
      ++at_;
    }
    return {start, at_};
  }
  void statement() {
    const char *start = at_;
    Instruction instruction;
    if (*at_ == '@') {
      ++at_;
      instruction.guard.inverted = *at_ == '!';
      if (*at_ == '!') ++at_;
      const bool inverted = instruction.guard.inverted;
      instruction.guard = arg();
      instruction.guard.inverted = inverted;
      skip();
    }
    if (*at_ == '%') {  // a label may contain an operand
      while (*at_ == '%') ++at_;
    }
    instruction.name = name();
    if (instruction.name.empty()) return stop(start);
    skip();
    if (*at_ == ':') {
      ++at_;
      labels_[instruction.name] = code_.instructions.size();
      return;
    }
    if (instruction.name[0] == '.') return declaration(instruction.name);
    while (*at_ && *at_ != ';' && *at_ != '}') {
      instruction.args.push_back(arg());
      skip();
      if (*at_ == ',' || *at_ == '|')
        ++at_;
      else
        break;
      skip();
    }
    skip();
    if (*at_ && *at_ != ';' && *at_ != '}') return stop(start);
    instruction.text.assign(start, at_);
    while (!instruction.text.empty() &&
           isspace(static_cast<unsigned char>(instruction.text.back())))
      instruction.text.pop_back();
    if (*at_ == ';') ++at_;
    prepare(instruction);
  }
  void stop(const char *start) {
    const char *end = start;
    while (*end && *end != ';') ++end;
    wrong(std::string(start, end));
  }
  void prepare(Instruction &i) {
    std::string word;
    for (const char c : i.name + ".") {
      if (c != '.') {
        word += c;
        continue;
      }
      i.words.push_back(word);
      Type t;
      if (i.words.size() > 1 && type_of(word, &t)) i.types.push_back(t);
      word.clear();
    }
    if (i.guard.kind == Arg::kLabel) return wrong(i.text, "there is no predicate " + i.guard.name);
    if (const std::string why = wrong_form(i); !why.empty()) return wrong(i.text, why);
    if (i.begins("cp.async.c") && i.args.size() > 3 && predicates_.count(i.args[3].slot) &&
        i.args[3].kind == Arg::kSlot)
      return wrong(i.text, "it has no form with a predicate");
    for (const auto chapter : {hopper, arithmetic, memory, together, control})
      if ((i.act = chapter(i))) break;
    if (!i.act) return wrong(i.text);
    code_.products |= i.begins("wgmma.mma_async");
    code_.instructions.push_back(i);
  }
  // .reg .pred p, q;  .reg .b32 r<4>;
  void declaration(const std::string &what) {
    if (what != ".reg") return stop((".x" + what).c_str() + 2);
    skip();
    const bool predicate = name() == ".pred";
    for (;;) {
      skip();
      while (*at_ == '%') ++at_;
      const std::string its = name();
      skip();
      if (*at_ == '<') {
        const long count = strtol(at_ + 1, const_cast<char **>(&at_), 10);
        for (long k = 0; k < count; ++k) slot(its + std::to_string(k));
        skip();
        if (*at_ == '>') ++at_;
      } else if (!its.empty()) {
        const unsigned one = slot(its);
        if (predicate) predicates_.insert(one);
      }
      skip();
      if (*at_ != ',') break;
      ++at_;
    }
  }
  unsigned slot(const std::string &its) {
    const auto [label, fresh] = slots_.try_emplace(its, code_.slots);
    if (fresh) ++code_.slots;
    return label->second;
  }
  Arg arg() {
    skip();
    Arg a;
    if (*at_ == '[') {
      ++at_;
      a = arg();
      skip();
      while (*at_ == '+' || *at_ == '-') {
        const int sign = *at_++ == '-' ? -1 : 1;
        skip();
        const Arg more = arg();
        if (more.kind == Arg::kNumber)
          a.number += sign * more.number;
        else
          a.parts.push_back(more);
        skip();
      }
      if (*at_ == ',') {
        ++at_;
        a.box = arg().parts;
        skip();
      }
      if (*at_ == ']') ++at_;
      a.address = true;
    } else if (*at_ == '{') {
      ++at_;
      a.kind = Arg::kVector;
      skip();
      while (*at_ && *at_ != '}') {
        a.parts.push_back(arg());
        skip();
        if (*at_ == ',') ++at_;
        skip();
      }
      if (*at_) ++at_;
    } else if (*at_ == '!') {
      ++at_;
      a = arg();
      a.inverted = true;
    } else if (*at_ == '_' && !in_name(at_[1])) {
      ++at_;
      a.kind = Arg::kNone;
    } else if (isdigit(static_cast<unsigned char>(*at_)) || *at_ == '-' ||
               (*at_ == '.' && isdigit(static_cast<unsigned char>(at_[1])))) {
      literal(a);
    } else if (*at_ == '%' && isdigit(static_cast<unsigned char>(at_[1]))) {
      a.kind = Arg::kSlot;
      a.slot = static_cast<unsigned>(strtol(at_ + 1, const_cast<char **>(&at_), 10));
      code_.operands = std::max(code_.operands, a.slot + 1);
    } else {
      while (*at_ == '%') ++at_;
      const char *start = at_;
      const std::string its = name();
      if (its.empty()) ++at_;
      const auto known = std::find(std::begin(kSpecials), std::end(kSpecials), its);
      if (slots_.count(its)) {
        a.kind = Arg::kSlot, a.slot = slots_[its];
      } else if (known != std::end(kSpecials)) {
        a.kind = Arg::kSpecial, a.slot = static_cast<unsigned>(known - std::begin(kSpecials));
      } else if (its == "WARP_SZ") {
        a.kind = Arg::kNumber, a.number = 32;
      } else {
        a.kind = Arg::kLabel, a.name.assign(start, at_);
      }
    }
    return a;
  }
  // Numbers are 64-bit integers, or floating-point numbers of 64 bits until their operand's type is
  // known. The bits after 0f and 0d have no sign.
  void literal(Arg &a) {
    a.kind = Arg::kNumber;
    char *end;
    const bool minus = *at_ == '-';
    if (minus) ++at_;
    const char *start = at_;
    const char second = at_[0] == '0' ? static_cast<char>(tolower(at_[1])) : 0;
    if (!minus && (second == 'f' || second == 'd')) {
      a.literal = second == 'f' ? Arg::kSingleBits : Arg::kDoubleBits;
      a.number = strtoull(at_ + 2, &end, 16);
      if (end - at_ != (second == 'f' ? 10 : 18)) return wrong(start);
    } else if (second == 'b') {
      a.number = strtoull(at_ + 2, &end, 2);
    } else {
      a.number = strtoull(at_, &end, 0);
      if (second != 'x' && (*end == '.' || *end == 'e' || *end == 'E' || end == at_)) {
        const double value = strtod(at_, &end);
        a.literal = Arg::kDecimal;
        a.number = to_bits(minus ? -value : value);
      }
    }
    if (a.literal == Arg::kInteger) {
      if (*end == 'U' || *end == 'u') ++end;
      if (minus) a.number = -a.number;
    }
    if (end == start || in_name(*end)) return wrong(start, "its number is not understood");
    at_ = end;
  }

  const char *at_;
  Code &code_;
  std::map<std::string, unsigned> slots_;
  std::map<std::string, u64> labels_;
  std::set<unsigned> predicates_;
};

}  // namespace

bool type_of(const std::string &name, Type *code) {
  static const std::map<std::string, Type> known = {
      {"f16", {'f', 16, false}},  {"f32", {'f', 32, false}},   {"f64", {'f', 64, false}},
      {"f16x2", {'f', 16, true}}, {"bf16", {'h', 16, false}},  {"bf16x2", {'h', 16, true}},
      {"tf32", {'t', 32, false}}, {"u8", {'u', 8, false}},     {"u16", {'u', 16, false}},
      {"u32", {'u', 32, false}},  {"u64", {'u', 64, false}},   {"s8", {'s', 8, false}},
      {"s16", {'s', 16, false}},  {"s32", {'s', 32, false}},   {"s64", {'s', 64, false}},
      {"b8", {'b', 8, false}},    {"b16", {'b', 16, false}},   {"b32", {'b', 32, false}},
      {"b64", {'b', 64, false}},  {"b128", {'b', 128, false}}, {"pred", {'p', 1, false}},
      {"e4m3", {'4', 8, false}},  {"e5m2", {'5', 8, false}},   {"e4m3x2", {'4', 8, true}},
      {"e5m2x2", {'5', 8, true}}, {"f32x2", {'f', 32, true}},  {"u16x2", {'u', 16, true}},
      {"s16x2", {'s', 16, true}}, {"s4", {'s', 4, false}},     {"u4", {'u', 4, false}},
      {"b1", {'b', 1, false}},
  };
  const auto at = known.find(name);
  if (at == known.end()) return false;
  *code = at->second;
  return true;
}

u64 Frame::get(const Arg &a) const {
  u64 value = a.number;
  if (a.kind == Arg::kSlot) value = a.address ? slots[a.slot] + a.number : slots[a.slot];
  if (a.kind == Arg::kSpecial) value = special(a.slot);
  if (a.address)
    for (const Arg &more : a.parts) value += get(more);
  return a.inverted ? !value : value;
}
void Frame::set(const Arg &a, u64 value) {
  if (a.kind == Arg::kSlot) slots[a.slot] = value;
}

u64 special(unsigned which) {
  const std::string_view name = kSpecials[which];
  u64 now = 0;
  if (name.find("clock") != name.npos || name.find("timer") != name.npos) {  // a call takes long
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    now = t.tv_sec * 1000000000ull + t.tv_nsec;
  }
  const emulator::Thread &t = *kw_current;
  const emulator::Block &b = *t.block;
  const u32 lane = t.number % 32;
  const u64 values[] = {
      lane,
      t.number / 32,
      (b.count + 31) / 32,
      t.index.x,
      t.index.y,
      t.index.z,
      b.size.x,
      b.size.y,
      b.size.z,
      b.index.x,
      b.index.y,
      b.index.z,
      b.grid.x,
      b.grid.y,
      b.grid.z,
      b.worker,
      132,
      0,
      1u << lane,
      (2u << lane) - 1,
      (1u << lane) - 1,
      ~((1u << lane) - 1),
      ~((2u << lane) - 1),
      static_cast<u32>(now),
      now,
      now >> 32,
      now,
      static_cast<u32>(now),
      b.rank,
      b.cluster,
      b.launch->shared,
      b.shared_bytes + b.launch->shared,
      b.index.x / b.cluster,  // clusters lie along x
      b.index.y,
      b.index.z,
      b.grid.x / b.cluster,
      b.grid.y,
      b.grid.z,
      b.rank,
      0,
      0,
      b.cluster,
      1,
      1,
      b.cluster > 1,
  };
  return values[which];
}

const Code *parsed(const char *text, const char *file, int line) {
  auto *code = new Code;
  code->file = file, code->line = line;
  Parser(text, *code).run();
  return code;
}

bool asynchronous(const Code *code) { return code->products; }

void execute(const Code *code, Operand *operands, unsigned count) {
  execute(code, operands, count, HERE, nullptr);
}

void execute(const Code *code, Operand *operands, unsigned count, const void *where,
             Gathering *gathering) {
  kw_current->where = kw_current->statement = where;
  if (!code->wrong.empty()) {
    const char *why = code->why.empty() ? refused(code->wrong) : code->why.c_str();
    kw_fail_at(where, "PTX `%s` is not emulated%s%s", code->wrong.c_str(), why ? ": " : "",
               why ? why : "");
  }
  if (code->operands > count)
    kw_fail_at(where, "PTX names the operand %%%u, of %u", code->operands - 1, count);
  u64 few[kOperands + 32];
  std::vector<u64> many(code->slots > kOperands + 32 ? code->slots : 0);
  void *held[kOperands];
  Frame frame = {many.empty() ? few : many.data(), where, 0, gathering, operands, held};
  for (unsigned i = 0; i < count; ++i) frame.slots[i] = operands[i].value;
  for (unsigned i = kOperands; i < code->slots; ++i) frame.slots[i] = 0;
  const int last = static_cast<int>(code->instructions.size());
  while (frame.next < last) {
    const Instruction &i = code->instructions[frame.next++];
    if (i.guard.kind == Arg::kNone || (frame.get(i.guard) & 1)) i.act(i, frame);
  }
  for (unsigned i = 0; i < count; ++i) operands[i].value = frame.slots[i];
  kw_current->statement = nullptr;
}

}  // namespace kw::ptx
