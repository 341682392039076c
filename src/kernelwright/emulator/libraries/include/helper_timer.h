// The functions that programs use from the header of this name in NVIDIA's samples: a stop watch.
#pragma once
#include <time.h>

class StopWatchInterface {
 public:
  void start() { began_ = now(), runs_ = true; }
  void stop() {
    total_ += now() - began_;
    runs_ = false;
    ++sessions_;
  }
  void reset() {
    total_ = 0, sessions_ = 0;
    if (runs_) began_ = now();
  }
  float getTime() const { return static_cast<float>(total_ + (runs_ ? now() - began_ : 0)); }
  float getAverageTime() const { return sessions_ ? static_cast<float>(total_ / sessions_) : 0; }

 private:
  static double now() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e3 + t.tv_nsec * 1e-6;
  }
  double began_ = 0, total_ = 0;
  bool runs_ = false;
  int sessions_ = 0;
};
inline bool sdkCreateTimer(StopWatchInterface **timer) {
  *timer = new StopWatchInterface;
  return true;
}
#define KW_TIMER(name, ...)                      \
  inline bool name(StopWatchInterface **timer) { \
    if (*timer) __VA_ARGS__;                     \
    return true;                                 \
  }
KW_TIMER(sdkDeleteTimer, delete *timer)
KW_TIMER(sdkStartTimer, (*timer)->start())
KW_TIMER(sdkStopTimer, (*timer)->stop())
KW_TIMER(sdkResetTimer, (*timer)->reset())
#undef KW_TIMER
inline float sdkGetTimerValue(StopWatchInterface **timer) { return (*timer)->getTime(); }
inline float sdkGetAverageTimerValue(StopWatchInterface **timer) {
  return (*timer)->getAverageTime();
}
