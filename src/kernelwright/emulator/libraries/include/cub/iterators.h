// Iterators over values that are computed when they are read.
#pragma once

namespace cub {

template <typename T> using KwValue = std::decay_t<decltype(*std::declval<T>())>;

// An iterator whose i-th element is get(i).
template <typename Own, typename T> struct KwIterator {
  using value_type = T;
  using difference_type = std::ptrdiff_t;
  using reference = T;
  using pointer = T *;
  using iterator_category = std::random_access_iterator_tag;
  std::ptrdiff_t at = 0;
  T operator*() const { return own().get(at); }
  T operator[](std::ptrdiff_t i) const { return own().get(at + i); }
  Own operator+(std::ptrdiff_t n) const {
    Own moved = own();
    moved.at += n;
    return moved;
  }
  Own operator-(std::ptrdiff_t n) const { return *this + -n; }
  std::ptrdiff_t operator-(const Own &other) const { return at - other.at; }
  Own &operator++() { return ++at, static_cast<Own &>(*this); }
  Own &operator+=(std::ptrdiff_t n) { return at += n, static_cast<Own &>(*this); }
  bool operator==(const Own &other) const { return at == other.at; }
  bool operator!=(const Own &other) const { return at != other.at; }

 private:
  const Own &own() const { return static_cast<const Own &>(*this); }
};
template <typename T, typename Offset = std::ptrdiff_t>
struct CountingInputIterator : KwIterator<CountingInputIterator<T, Offset>, T> {
  T first;
  CountingInputIterator(T first) : first(first) {}
  T get(std::ptrdiff_t i) const { return static_cast<T>(first + i); }
};
template <typename T, typename Offset = std::ptrdiff_t>
struct ConstantInputIterator : KwIterator<ConstantInputIterator<T, Offset>, T> {
  T value;
  ConstantInputIterator(T value) : value(value) {}
  T get(std::ptrdiff_t) const { return value; }
};
template <typename T, typename F, typename In, typename Offset = std::ptrdiff_t>
struct TransformInputIterator : KwIterator<TransformInputIterator<T, F, In, Offset>, T> {
  In in;
  F f;
  TransformInputIterator(In in, F f) : in(in), f(f) {}
  T get(std::ptrdiff_t i) const { return f(in[i]); }
};
template <typename In, typename Offset = std::ptrdiff_t, typename T = KwValue<In>>
struct ArgIndexInputIterator
    : KwIterator<ArgIndexInputIterator<In, Offset, T>, KeyValuePair<Offset, T>> {
  In in;
  ArgIndexInputIterator(In in) : in(in) {}
  KeyValuePair<Offset, T> get(std::ptrdiff_t i) const { return {static_cast<Offset>(i), in[i]}; }
};
enum CacheLoadModifier {
  LOAD_DEFAULT,
  LOAD_CA,
  LOAD_CG,
  LOAD_CS,
  LOAD_CV,
  LOAD_LDG,
  LOAD_VOLATILE
};
template <CacheLoadModifier, typename T, typename Offset = std::ptrdiff_t>
using CacheModifiedInputIterator = const T *;
template <CacheLoadModifier, typename In> __forceinline__ KwValue<In> ThreadLoad(In p) {
  return *p;
}

}  // namespace cub
