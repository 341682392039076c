// Accesses to volatile memory, by which old code lets the lanes of a warp exchange values without
// saying so: it counts on lanes that execute each statement together, as GPUs before Volta did and
// later ones usually do. program/lockstep.py writes place = value as
// KwLockstep(place) = (KwBeforeWrite(place), value), and place elsewhere as KwRead(place). Lanes
// meet before they compute the value, before the write, after it, and before each read. With the
// checks nothing changes, and the races are found.
#pragma once

#ifdef KW_WATCHED
#define KwLockstep(...) (__VA_ARGS__)
#define KwRead(...) (__VA_ARGS__)
#define KwBeforeWrite(...) (void)0
#else
#define KwLockstep(...) kw::program::lockstep(__LINE__, __VA_ARGS__)
#define KwRead(...) kw::program::lockstep_read(__LINE__, __VA_ARGS__)
#define KwBeforeWrite(...) kw::program::before_write<decltype((__VA_ARGS__))>(__LINE__)

namespace kw::program {

KW_BUILT_IN void sync_lanes(unsigned line) {
  if (kw_current) emulator::together(emulator::kActivemask, 0, 0, line);
}
// A thread's own variables concern no other lane.
template <typename T> KW_BUILT_IN bool of_others(const volatile T &place) {
  const auto *const p = reinterpret_cast<const volatile char *>(&place);
  if (!kw_current) return false;
  const auto *const stack = static_cast<const char *>(kw_current->stack);
  return p < stack || p >= stack + emulator::kStack;
}

template <typename T> class Lockstep {
 public:
  Lockstep(unsigned line, volatile T &place) : line_(line), p_(&place) {}
  __forceinline__ T operator=(T value) const {
    together();
    *p_ = value;
    together();
    return value;
  }
  template <typename U> __forceinline__ T operator+=(U v) const { return *this = T(*p_ + v); }
  template <typename U> __forceinline__ T operator-=(U v) const { return *this = T(*p_ - v); }
  template <typename U> __forceinline__ T operator*=(U v) const { return *this = T(*p_ * v); }
  template <typename U> __forceinline__ T operator/=(U v) const { return *this = T(*p_ / v); }
  template <typename U> __forceinline__ T operator%=(U v) const { return *this = T(*p_ % v); }
  template <typename U> __forceinline__ T operator&=(U v) const { return *this = T(*p_ & v); }
  template <typename U> __forceinline__ T operator|=(U v) const { return *this = T(*p_ | v); }
  template <typename U> __forceinline__ T operator^=(U v) const { return *this = T(*p_ ^ v); }
  template <typename U> __forceinline__ T operator<<=(U v) const { return *this = T(*p_ << v); }
  template <typename U> __forceinline__ T operator>>=(U v) const { return *this = T(*p_ >> v); }
  __forceinline__ T operator++() const { return *this = T(*p_ + 1); }
  __forceinline__ T operator--() const { return *this = T(*p_ - 1); }
  __forceinline__ T operator++(int) const { return step(1); }
  __forceinline__ T operator--(int) const { return step(-1); }

 private:
  __forceinline__ T step(int by) const {
    const T before = *p_;
    *this = T(before + by);
    return before;
  }
  __forceinline__ void together() const {
    if (of_others(*p_)) sync_lanes(line_);
  }
  unsigned line_;
  volatile T *p_;
};

template <typename T>
inline constexpr bool kExchanged = std::is_volatile_v<std::remove_reference_t<T> > &&
                                   std::is_scalar_v<std::remove_reference_t<T> >;
template <typename Place> KW_BUILT_IN constexpr void before_write(unsigned line) {
  if constexpr (kExchanged<Place>) sync_lanes(line);
}
// Any place but a volatile number or pointer is left as it is.
template <typename T> KW_BUILT_IN constexpr T &&lockstep(unsigned, T &&place) {
  return static_cast<T &&>(place);
}
template <typename T, std::enable_if_t<std::is_scalar_v<T>, int> = 0>
KW_BUILT_IN Lockstep<T> lockstep(unsigned line, volatile T &place) {
  return Lockstep<T>(line, place);
}
template <typename T> KW_BUILT_IN constexpr T &&lockstep_read(unsigned, T &&place) {
  return static_cast<T &&>(place);
}
template <typename T, std::enable_if_t<std::is_scalar_v<T>, int> = 0>
KW_BUILT_IN std::remove_const_t<T> lockstep_read(unsigned line, volatile T &place) {
  if (of_others(place)) sync_lanes(line);
  return place;
}
}  // namespace kw::program
#endif
