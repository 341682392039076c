// What a debugger shows of the present thread's block (gdb_commands.py): its mbarriers, and the D
// of its warp group's latest product.
#pragma once
#include <map>

#include "wgmma.h"

namespace kw::emulator {
namespace {

std::string value_in(Format f, std::uint32_t bits) {
  if (f == kInt32) return say("%d", static_cast<int>(bits));
  if (f == kHalf) return say("%g", half_value(bits));
  float x;
  std::memcpy(&x, &bits, sizeof x);
  return say("%g", double(x));
}

std::string tile_of(const Issued &i, bool done, unsigned row, unsigned column) {
  const Product &p = i.product;
  const unsigned count = register_count(p), halves = p.d == kHalf ? 2 : 1;
  std::string text = say("D of m64n%uk%u, %s\n%8s", p.n, p.k,
                         done ? "done" : "not done: it still holds the old values", "");
  const unsigned last_row = std::min(row + 16, 64u), last = std::min(column + 8, p.n);
  std::map<std::pair<unsigned, unsigned>, std::uint32_t> values;
  for (unsigned lane = 0; lane < i.threads; ++lane)
    for (unsigned v = 0; v < count * halves; ++v) {
      std::uint32_t x = 0;
      std::memcpy(&x, static_cast<unsigned char *>(i.d[lane * count + v / halves]) + v % halves * 2,
                  4 / halves);
      values[{row_of(lane, v), column_of(lane, v)}] = x;
    }
  for (unsigned c = column; c < last; ++c) text += say("%12s", say("column %u", c).c_str());
  for (unsigned r = row; r < last_row; ++r) {
    text += say("\n%8s", say("row %u", r).c_str());
    for (unsigned c = column; c < last; ++c) {
      const auto at = values.find({r, c});
      text += say("%12s", at == values.end() ? "?" : value_in(p.d, at->second).c_str());
    }
  }
  return text;
}

}  // namespace
}  // namespace kw::emulator

const char *kw_show_barriers() {
  static std::string text;
  text.clear();
  Running &b = running(*kw_current);
  std::map<unsigned, Mbarrier> ordered(b.mbarriers.begin(), b.mbarriers.end());
  for (const auto &[at, m] : ordered)
    text += say("%smbarrier at byte %u: phase %u, %u of %u arrivals and %lld bytes are missing",
                text.empty() ? "" : "\n", at, m.phase, m.pending, m.count,
                static_cast<long long>(m.missing));
  for (unsigned i = 0; i < 16; ++i)
    if (b.named[i]) text += say("\nbarrier %u: %u threads have arrived", i, b.named[i]);
  if (text.empty()) text = "this block has no mbarriers";
  return text.c_str();
}

const char *kw_show_tile(unsigned row, unsigned column) {
  static std::string text;
  Products &all = products_of(*kw_current);
  if (!all.waiting.empty())
    text = tile_of(all.waiting.back(), false, row, column);
  else if (!all.spare.empty())
    text = tile_of(all.spare.back(), true, row, column);
  else
    text = "this thread's warp group has issued no product";
  return text.c_str();
}
