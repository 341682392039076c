// The functions that programs use from the header of this name in NVIDIA's samples.
#pragma once
#include <algorithm>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include <helper_string.h>
#include <helper_timer.h>

template <typename T>
inline bool kw_alike(const T *a, const T *b, size_t n, double epsilon, double threshold) {
  size_t wrong = 0;
  for (size_t i = 0; i < n; ++i) wrong += std::fabs(double(a[i]) - double(b[i])) > epsilon;
  return wrong <= threshold * n;
}
template <typename T, typename S>
inline bool compareData(const T *a, const T *b, unsigned n, S epsilon, float threshold) {
  return kw_alike(a, b, n, epsilon, threshold);
}
inline bool compareDataAsFloatThreshold(const float *a, const float *b, unsigned n, float epsilon,
                                        float threshold) {
  return kw_alike(a, b, n, epsilon, threshold);
}
inline bool sdkCompareL2fe(const float *a, const float *b, unsigned n, float epsilon) {
  double error = 0, norm = 0;
  for (unsigned i = 0; i < n; ++i)
    error += (double(a[i]) - b[i]) * (double(a[i]) - b[i]), norm += double(a[i]) * a[i];
  return norm > 1e-7 && std::sqrt(error / norm) < epsilon;
}
template <typename T>
inline bool sdkWriteFile(const char *name, const T *data, unsigned n, float, bool, bool = false) {
  std::ofstream file(name);
  for (unsigned i = 0; i < n; ++i) file << data[i] << ' ';
  return file.good();
}
template <typename T> inline bool sdkReadFile(const char *name, T **data, unsigned *n, bool) {
  std::ifstream file(name);
  std::vector<T> all;
  for (T x; file >> x;) all.push_back(x);
  if (all.empty()) return false;
  *n = static_cast<unsigned>(all.size());
  if (!*data) *data = static_cast<T *>(malloc(all.size() * sizeof(T)));
  std::copy(all.begin(), all.end(), *data);
  return true;
}
