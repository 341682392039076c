// Products of a warp group (wgmma): its threads issue them, wait for groups of them, and find the
// results in their registers. A product happens as late as a GPU may choose, when a thread waits
// for it, or in a random order of threads, at any moment before.
#pragma once
#include <cstring>
#include <memory>

#include "bulk.h"
#include "descriptor.h"

namespace kw::emulator {
namespace {

unsigned register_count(const Product &p) { return p.d == kHalf ? p.n / 4 : p.n / 2; }

// Reads a matrix of `rows` rows; its elements along k one after the other.
void read_operand(Thread &t, const Issued &i, std::uint64_t bits, unsigned rows, Format f,
                  bool k_major, std::uint32_t (*to)[32]) {
  const Descriptor d(bits);
  Running &b = running(t);
  const unsigned char *const shared = memory_of(worker_of(&t), b);
  const unsigned bytes = bits_of(f) / 8;
  for (unsigned r = 0; r < rows; ++r)
    for (unsigned k = 0; k < i.product.k; ++k) {
      const unsigned at = d.at(r, k, k_major, bytes);
      if (at + bytes > bytes_of(b))
        fail_at(t, i.where,
                say("multiplies a matrix whose descriptor leads to byte %u of shared memory, which "
                    "has %llu,",
                    at, bytes_of(b)));
      to[r][k] = 0;
      std::memcpy(&to[r][k], shared + at, bytes);
    }
}

// Register v of thread t of D, and the elements in it.
unsigned row_of(unsigned t, unsigned v) { return t / 32 * 16 + t % 32 / 4 + v / 2 % 2 * 8; }
unsigned column_of(unsigned t, unsigned v) { return t % 4 * 2 + v % 2 + v / 4 * 8; }

void perform(Thread &t, Issued &i) {
  static thread_local std::unique_ptr<Tiles> held;  // large for the memory of an OS thread
  if (!held) held = std::make_unique<Tiles>();
  Tiles &tiles = *held;
  const Product &p = i.product;
  const unsigned count = register_count(p), halves = p.d == kHalf ? 2 : 1;
  if (p.from_registers) {
    const unsigned bits = bits_of(p.a), each = 32 / bits;
    for (unsigned lane = 0; lane < kWarpGroup; ++lane)
      for (unsigned r = 0; r < 4; ++r)
        for (unsigned e = 0; e < each; ++e)
          tiles.a[lane / 32 * 16 + lane % 32 / 4 + r % 2 * 8]
                 [r / 2 * 4 * each + lane % 4 * each + e] =
              bits == 32 ? i.a[lane][r] : i.a[lane][r] >> e * bits & ((1u << bits) - 1);
  } else {
    read_operand(t, i, p.at_a, 64, p.a, p.a_k_major, tiles.a);
  }
  read_operand(t, i, p.at_b, p.n, p.b, p.b_k_major, tiles.b);
  const auto each = [&](auto visit) {
    for (unsigned lane = 0; lane < kWarpGroup; ++lane)
      for (unsigned v = 0; v < count * halves; ++v)
        visit(static_cast<unsigned char *>(i.d[lane * count + v / halves]) + v % halves * 2,
              tiles.d[row_of(lane, v)][column_of(lane, v)]);
  };
  const unsigned bytes = 4 / halves;
  each([&](const void *own, std::uint32_t &x) { x = 0, std::memcpy(&x, own, bytes); });
  multiply(p, tiles);
  each([&](void *own, std::uint32_t x) { std::memcpy(own, &x, bytes); });
}

Products &products_of(Thread &t) { return running(t).products[t.number / kWarpGroup]; }

// Performs the products that all threads have issued, up to the number `last`; wakes those that
// wait for no later one. Returns how many are done.
unsigned perform_until(Thread &t, unsigned last) {
  Products &all = products_of(t);
  while (all.done < last && !all.waiting.empty() && all.waiting.front().threads == kWarpGroup) {
    perform(t, all.waiting.front());
    all.spare.push_back(std::move(all.waiting.front()));
    all.waiting.pop_front();
    ++all.done;
  }
  return all.done;
}

void wake(Thread &t, unsigned done) {
  Running &b = running(t);
  const unsigned first = t.number / kWarpGroup * kWarpGroup;
  for (unsigned i = first; i < first + kWarpGroup && i < b.count; ++i) {
    Thread &other = b.threads[i];
    if (other.wait != kProducts || other.in > done) continue;
    other.wait = kNothing;
    set(b.ready, i);
  }
}

// The latest product that a thread of the warp group waits for.
unsigned wanted(Thread &t) {
  const Running &b = running(t);
  const unsigned first = t.number / kWarpGroup * kWarpGroup;
  unsigned last = 0;
  for (unsigned i = first; i < first + kWarpGroup && i < b.count; ++i)
    if (b.threads[i].wait == kProducts)
      last = std::max(last, static_cast<unsigned>(b.threads[i].in));
  return last;
}

bool same(const Product &x, const Product &y) {
  return x.n == y.n && x.k == y.k && x.d == y.d && x.a == y.a && x.b == y.b &&
         x.from_registers == y.from_registers && x.a_k_major == y.a_k_major &&
         x.b_k_major == y.b_k_major && x.adds == y.adds && x.negates_a == y.negates_a &&
         x.negates_b == y.negates_b && x.at_b == y.at_b && (x.from_registers || x.at_a == y.at_a);
}

}  // namespace
}  // namespace kw::emulator

void kw_product(const Product *p, void *const *d) {
  Thread &t = *kw_current;
  Worker &w = worker_of(&t);
  Async &own = async_of(t);
  w.busy = true;
  ++w.progress;
  if (t.number / kWarpGroup * kWarpGroup + kWarpGroup > t.block->count)
    fail_at(t, HERE, "issues a wgmma in a warp group of fewer than 128 threads");
  Products &all = products_of(t);
  const unsigned number = own.issued++ - all.done;
  if (number == all.waiting.size()) {
    if (all.spare.empty()) all.spare.emplace_back();
    all.waiting.push_back(std::move(all.spare.back()));
    all.spare.pop_back();
    Issued &fresh = all.waiting.back();
    fresh.product = *p, fresh.threads = 0, fresh.where = HERE;
    fresh.d.resize(register_count(*p) * kWarpGroup);
  }
  Issued &i = all.waiting[number];
  if (!same(*p, i.product))
    fail_at(t, HERE,
            "issues another wgmma than the other threads of its warp group, or the same with "
            "another descriptor,");
  const unsigned lane = t.number % kWarpGroup, count = register_count(*p);
  std::memcpy(i.d.data() + lane * count, d, count * sizeof *d);
  std::memcpy(i.a[lane], p->registers, sizeof p->registers);
  tell(t, {Engine::kProductIssued, HERE, nullptr, own.issued - 1, false, false, p, d});
  if (++i.threads == kWarpGroup) {
    const bool early = w.launch->seed && draw(w.random) % 2;
    wake(t, perform_until(t, early ? own.issued : wanted(t)));
  }
  w.busy = false;
}

void kw_product_fence() {
  async_of(*kw_current);  // from now on, the thread's own variables may be a product's
  tell(*kw_current, {Engine::kProductFence, HERE, nullptr, 0, false, false, nullptr, nullptr});
}

void kw_product_commit() {
  Async &own = async_of(*kw_current);
  own.products.push_back(own.issued);
}

void kw_product_wait(unsigned groups) {
  Thread &t = *kw_current;
  Worker &w = worker_of(&t);
  Async &own = async_of(t);
  w.busy = true;
  ++w.progress;
  const std::size_t committed = own.products.size();
  const unsigned last = committed > groups ? own.products[committed - groups - 1] : 0;
  const unsigned done = perform_until(t, last);
  wake(t, done);
  if (done < last) {
    t.wait = kProducts;
    t.where = HERE;
    t.in = last;
    t.mask = 0xffffffff;
    wait(w, &t);
  }
  tell(t, {Engine::kProductsEnded, HERE, nullptr, last, false, false, nullptr, nullptr});
  w.busy = false;
}

void kw_registers(unsigned count) {
  if (count < 24 || count > 256 || count % 8)
    fail_at(*kw_current, HERE,
            say("sets the number of its registers to %u, which is no multiple of 8 from 24 to 256,",
                count));
}
