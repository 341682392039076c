// Pointers to volatile memory, by which old code lets the lanes of a warp exchange values without
// saying so: it counts on lanes that execute each statement together, as GPUs before Volta did and
// later ones usually do. Lanes meet before and after each such write. With the checks, these
// pointers are plain, and the races are found.
#pragma once

namespace kw::program {

#ifdef KW_WATCHED
template <typename T> using Lockstep = volatile T *;
#else
template <typename T> class Lockstep {
 public:
  class Place {
   public:
    explicit Place(volatile T *p) : p_(p) {}
    KW_BUILT_IN void together() {
      if (kw_current) __activemask();
    }
    __forceinline__ operator T() const { return *p_; }
    __forceinline__ T operator=(T value) {
      together();
      *p_ = value;
      together();
      return value;
    }
    __forceinline__ T operator=(const Place &other) { return *this = T(other); }
    __forceinline__ T operator+=(T v) { return *this = T(*this + v); }
    __forceinline__ T operator-=(T v) { return *this = T(*this - v); }
    __forceinline__ T operator*=(T v) { return *this = T(*this * v); }
    __forceinline__ T operator&=(T v) { return *this = T(T(*this) & v); }
    __forceinline__ T operator|=(T v) { return *this = T(T(*this) | v); }
    __forceinline__ T operator^=(T v) { return *this = T(T(*this) ^ v); }
    __forceinline__ volatile T *operator&() const { return p_; }

   private:
    volatile T *p_;
  };
  Lockstep() = default;
  Lockstep(volatile T *p) : p_(p) {}
  template <typename U> explicit Lockstep(U *p) : p_(reinterpret_cast<volatile T *>(p)) {}
  __forceinline__ Place operator[](long long i) const { return Place(p_ + i); }
  __forceinline__ Place operator*() const { return Place(p_); }
  Lockstep &operator++() { return ++p_, *this; }
  Lockstep &operator+=(long long n) { return p_ += n, *this; }
  friend Lockstep operator+(Lockstep a, long long n) { return Lockstep(a.p_ + n); }
  friend Lockstep operator-(Lockstep a, long long n) { return Lockstep(a.p_ - n); }
  operator volatile T *() const { return p_; }

 private:
  volatile T *p_;
};
#endif
}  // namespace kw::program
