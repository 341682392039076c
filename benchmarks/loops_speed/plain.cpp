// The products of kernels.cu in plain C++, in the order of their loops, by two threads. Prints the
// processor time of each.
#include <cstdio>
#include <ctime>
#include <thread>
#include <vector>

constexpr int T = 32;

static void naive(const float *a, const float *b, float *c, int n, int first, int last) {
  for (int i = first; i < last; ++i)
    for (int j = 0; j < n; ++j) {
      float sum = 0;
      for (int k = 0; k < n; ++k) sum += a[i * n + k] * b[k * n + j];
      c[i * n + j] = sum;
    }
}
static void tiled(const float *a, const float *b, float *c, int n, int first, int last) {
  float x[T][T], y[T][T], sum[T][T];
  for (int row = first; row < last; row += T)
    for (int col = 0; col < n; col += T) {
      for (int i = 0; i < T; ++i)
        for (int j = 0; j < T; ++j) sum[i][j] = 0;
      for (int t = 0; t < n; t += T) {
        for (int i = 0; i < T; ++i)
          for (int j = 0; j < T; ++j) {
            x[i][j] = a[(row + i) * n + t + j];
            y[i][j] = b[(t + i) * n + col + j];
          }
        for (int i = 0; i < T; ++i)
          for (int j = 0; j < T; ++j)
            for (int k = 0; k < T; ++k) sum[i][j] += x[i][k] * y[k][j];
      }
      for (int i = 0; i < T; ++i)
        for (int j = 0; j < T; ++j) c[(row + i) * n + col + j] = sum[i][j];
    }
}

static double seconds() {
  timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return t.tv_sec + t.tv_nsec * 1e-9;
}
template <typename F> void timed(const char *name, F product, int n) {
  const double start = seconds();
  std::thread other([&] { product(0, n / 2); });
  product(n / 2, n);
  other.join();
  printf("%s %.4f\n", name, seconds() - start);
}
int main() {
  const int n = 1024;
  std::vector<float> in(2 * n * n), out(n * n);
  for (int i = 0; i < 2 * n * n; ++i) in[i] = (i * 37 % 101) / 50.f - 1;
  const float *const a = in.data(), *const b = a + n * n;
  float *const c = out.data();
  timed("naive", [&](int x, int y) { naive(a, b, c, n, x, y); }, n);
  timed("tiled", [&](int x, int y) { tiled(a, b, c, n, x, y); }, n);
  return out[5] == 12345;
}
