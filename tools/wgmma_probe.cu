// Which bits wgmma.mma_async gives on tiles that tell roundings apart: cancellation, terms just
// below the last bit that a sum keeps, infinities, denormals, signs of zeros. One line per tile:
// its name and a hash of the 512 results; with an argument, the results too.
//
//     nvcc -arch=sm_90a tools/wgmma_probe.cu -o wgmma_probe && ./wgmma_probe > wgmma.txt   on a GPU
//     kernelwright run tools/wgmma_probe.cu > wgmma.txt                            in the emulator
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

constexpr int kLine = 32;  // bytes of a row of A or of a column of B: one instruction's k
struct Input {             // of one block
  unsigned char a[64 * kLine], b[8 * kLine];  // core matrices of 8 lines of 16 bytes, k outermost
  uint32_t held[128][4], d[128][4];           // what each thread holds of A and of D
};

// Matrices of 8 lines, 16 bytes of each: those along k are 128 bytes apart, the others 256.
__device__ uint64_t descriptor(const void *p) {
  return uint64_t(__cvta_generic_to_shared(p) & 0x3ffff) >> 4 | uint64_t(128 / 16) << 16 |
         uint64_t(256 / 16) << 32;
}

#define ISSUE(SHAPE, D, A, REST, ...)                                                      \
  asm volatile("wgmma.mma_async.sync.aligned.m64n8" SHAPE " {" D "}, " A ", %4, " REST ";" \
               : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])                            \
               : "l"(of_b), __VA_ARGS__                                                    \
               : "memory")
#define FOUR "%0, %1, %2, %3"
#define SHARED(SHAPE, D, REST) ISSUE(SHAPE, D, "%5", REST, "l"(of_a))
#define HELD(SHAPE, D, REST) \
  ISSUE(SHAPE, D, "{%5, %6, %7, %8}", REST, "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]))

#define PROBE(NAME, STATEMENTS)                                                     \
  __global__ void NAME(const Input *all, uint32_t *out) {                           \
    __shared__ __align__(128) unsigned char a[64 * kLine], b[8 * kLine];            \
    const Input &in = all[blockIdx.x];                                              \
    for (int i = threadIdx.x; i < 64 * kLine; i += 128) a[i] = in.a[i];             \
    for (int i = threadIdx.x; i < 8 * kLine; i += 128) b[i] = in.b[i];              \
    uint32_t x[4], d[4];                                                            \
    for (int i = 0; i < 4; ++i) x[i] = in.held[threadIdx.x][i];                     \
    for (int i = 0; i < 4; ++i) d[i] = in.d[threadIdx.x][i];                        \
    const uint64_t of_a = descriptor(a), of_b = descriptor(b);                      \
    (void)x, (void)of_a;                                                            \
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");                    \
    __syncthreads();                                                                \
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");                         \
    STATEMENTS;                                                                     \
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");                  \
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");                  \
    for (int i = 0; i < 4; ++i) out[blockIdx.x * 512 + threadIdx.x * 4 + i] = d[i]; \
  }

PROBE(f16, SHARED("k16.f32.f16.f16", FOUR, "1, 1, 1, 0, 0"))
PROBE(bf16, SHARED("k16.f32.bf16.bf16", FOUR, "1, 1, 1, 0, 0"))
PROBE(tf32, SHARED("k8.f32.tf32.tf32", FOUR, "1, 1, 1"))
PROBE(e4m3, SHARED("k32.f32.e4m3.e4m3", FOUR, "1, 1, 1"))
PROBE(e5m2, SHARED("k32.f32.e5m2.e5m2", FOUR, "1, 1, 1"))
PROBE(e4m3_e5m2, SHARED("k32.f32.e4m3.e5m2", FOUR, "1, 1, 1"))
PROBE(half, SHARED("k16.f16.f16.f16", "%0, %1", "1, 1, 1, 0, 0"))
PROBE(half_e4m3, SHARED("k32.f16.e4m3.e4m3", "%0, %1", "1, 1, 1"))
PROBE(half_e5m2, SHARED("k32.f16.e5m2.e5m2", "%0, %1", "1, 1, 1"))
PROBE(s8, SHARED("k32.s32.s8.s8", FOUR, "1"))
PROBE(u8, SHARED("k32.s32.u8.u8", FOUR, "1"))
PROBE(held_bf16, HELD("k16.f32.bf16.bf16", FOUR, "1, 1, 1, 0"))
PROBE(held_tf32, HELD("k8.f32.tf32.tf32", FOUR, "1, 1, 1"))
PROBE(held_e4m3, HELD("k32.f32.e4m3.e4m3", FOUR, "1, 1, 1"))
PROBE(minus_f16, SHARED("k16.f32.f16.f16", FOUR, "1, -1, 1, 0, 0"))
PROBE(minus_e5m2, SHARED("k32.f32.e5m2.e5m2", FOUR, "1, 1, -1"))
PROBE(new_f16, SHARED("k16.f32.f16.f16", FOUR, "0, 1, 1, 0, 0"))
PROBE(new_e4m3, SHARED("k32.f32.e4m3.e4m3", FOUR, "0, 1, 1"))
// Two products on one D: whether it is rounded in between.
PROBE(twice_bf16, SHARED("k16.f32.bf16.bf16", FOUR, "1, 1, 1, 0, 0");
      SHARED("k16.f32.bf16.bf16", FOUR, "1, 1, 1, 0, 0"))
PROBE(twice_e4m3, SHARED("k32.f32.e4m3.e4m3", FOUR, "1, 1, 1");
      SHARED("k32.f32.e4m3.e4m3", FOUR, "1, 1, 1"))

struct Format {
  int bits, mantissa, bias;  // of a number; no bias for integers
};
const Format kHalf = {16, 10, 15}, kBfloat = {16, 7, 127}, kSingle = {32, 23, 127},
             kE4m3 = {8, 3, 7}, kE5m2 = {8, 2, 15}, kByte = {8, 0, 0}, kWord = {32, 0, 0};
struct Shape {
  const char *name;
  void (*kernel)(const Input *, uint32_t *);
  Format a, b, sum;
};
const Shape kShapes[] = {
    {"f16", f16, kHalf, kHalf, kSingle},
    {"bf16", bf16, kBfloat, kBfloat, kSingle},
    {"tf32", tf32, kSingle, kSingle, kSingle},
    {"e4m3", e4m3, kE4m3, kE4m3, kSingle},
    {"e5m2", e5m2, kE5m2, kE5m2, kSingle},
    {"e4m3_e5m2", e4m3_e5m2, kE4m3, kE5m2, kSingle},
    {"half", half, kHalf, kHalf, kHalf},
    {"half_e4m3", half_e4m3, kE4m3, kE4m3, kHalf},
    {"half_e5m2", half_e5m2, kE5m2, kE5m2, kHalf},
    {"s8", s8, kByte, kByte, kWord},
    {"u8", u8, kByte, kByte, kWord},
    {"held_bf16", held_bf16, kBfloat, kBfloat, kSingle},
    {"held_tf32", held_tf32, kSingle, kSingle, kSingle},
    {"held_e4m3", held_e4m3, kE4m3, kE4m3, kSingle},
    {"minus_f16", minus_f16, kHalf, kHalf, kSingle},
    {"minus_e5m2", minus_e5m2, kE5m2, kE5m2, kSingle},
    {"new_f16", new_f16, kHalf, kHalf, kSingle},
    {"new_e4m3", new_e4m3, kE4m3, kE4m3, kSingle},
    {"twice_bf16", twice_bf16, kBfloat, kBfloat, kSingle},
    {"twice_e4m3", twice_e4m3, kE4m3, kE4m3, kSingle},
};
enum Tile {
  kNear,
  kWide,
  kCancel,
  kBelowOne,
  kBelowNegative,
  kManyBelow,
  kOrder,
  kDenormal,
  kZero,
  kSpecial,
  kOverflow,
  kTiles
};
const char *const kNames[] = {"near",  "wide",     "cancel", "below",   "below_negative", "many",
                              "order", "denormal", "zero",   "special", "overflow"};
constexpr int kVariants = 8;

uint64_t state;
uint32_t draw() {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return static_cast<uint32_t>(state >> 33);
}
int between(int low, int high) { return low + static_cast<int>(draw() % (high - low + 1)); }

// +-1.m * 2^exponent, clipped to the format's normal numbers; below them, denormals.
uint32_t make(const Format &f, bool negative, int exponent, uint32_t m) {
  const int width = f.bits - 1 - f.mantissa, most = (1 << width) - 1;
  int e = exponent + f.bias;
  if (e >= most) e = most - 1;
  if (e < 0) e = 0;
  return static_cast<uint32_t>(negative) << (f.bits - 1) | static_cast<uint32_t>(e) << f.mantissa |
         (m & ((1u << f.mantissa) - 1));
}
uint32_t infinity(const Format &f, bool nan) {  // e4m3 has no infinity
  if (f.bits == 8 && f.mantissa == 3) return 0x7f;
  return ((1u << (f.bits - 1 - f.mantissa)) - 1) << f.mantissa | nan;
}
// Exponents from 0 to -(reach - 1) with which products fall on both sides of a sum's last bit.
int reach_of(const Format &f) { return f.bias < 16 ? f.bias : 16; }

uint32_t a[64][32], b[32][8], c[64][8];

void fill(const Shape &s, Tile tile, int variant) {
  const Format &fa = s.a, &fb = s.b, &sum = s.sum;
  const int depth = 8 * kLine / fa.bits, one = variant % depth, other = (variant * 5 + 3) % depth;
  const auto sign = [] { return draw() & 1; };
  for (auto &row : a)
    for (uint32_t &x : row) x = fa.bias ? make(fa, sign(), between(-2, 2), draw()) : draw() & 0xff;
  for (auto &row : b)
    for (uint32_t &x : row) x = fb.bias ? make(fb, sign(), between(-2, 2), draw()) : draw() & 0xff;
  for (auto &row : c)
    for (uint32_t &x : row)
      x = sum.bias        ? make(sum, sign(), between(-3, 5), draw())
          : tile == kNear ? draw() << 1
                          : draw() % 100000;
  if (!fa.bias) return;
  const int wide_a = reach_of(fa) << variant % 2, wide_b = reach_of(fb) << variant % 2;
  for (int r = 0; r < 64; ++r)
    for (int k = 0; k < depth; ++k) {
      uint32_t &x = a[r][k];
      const int low = -(r % reach_of(fa));
      if (tile == kWide) x = make(fa, sign(), between(-wide_a, wide_a), draw());
      if (tile == kCancel && k % 2) x = a[r][k - 1] ^ 1u << (fa.bits - 1);
      if (tile == kBelowOne || tile == kBelowNegative)
        x = k == one ? make(fa, (r ^ (tile == kBelowNegative)) & 1, low, 0) : 0;
      if (tile == kManyBelow) x = make(fa, variant & 1, low, variant & 2 ? draw() : 0);
      if (tile == kOrder) x = make(fa, k == other, k == one || k == other ? reach_of(fa) : low, 0);
      if (tile == kDenormal) x = make(fa, sign(), -fa.bias - sign(), draw());
      if (tile == kZero) x = sign() << (fa.bits - 1);
      if (tile == kOverflow) x = make(fa, r & 1, 200, draw() & ~1u);  // e4m3: no NaN
    }
  for (int k = 0; k < depth; ++k)
    for (int n = 0; n < 8; ++n) {
      uint32_t &x = b[k][n];
      if (tile == kWide) x = make(fb, sign(), between(-wide_b, wide_b), draw());
      if (tile == kCancel && k % 2) {
        x = b[k - 1][n];
        if (k == 2 * (variant % (depth / 2)) + 1) x ^= 1;  // all but one pair cancel
      }
      if (tile == kBelowOne || tile == kBelowNegative || tile == kManyBelow)
        x = make(fb, 0, -(2 * n % reach_of(fb)), tile != kManyBelow && n & 1 ? draw() : 0);
      if (tile == kOrder) x = make(fb, 0, n / 2, 0);
      if (tile == kZero && variant & 1) x = sign() << (fb.bits - 1);
      if (tile == kOverflow) x = make(fb, 0, 200, draw() & ~1u);
    }
  for (int r = 0; r < 64; ++r)
    for (int n = 0; n < 8; ++n) {
      uint32_t &x = c[r][n];
      if (tile == kWide) x = make(sum, sign(), between(-2 * wide_a, 2 * wide_a), draw());
      if (tile == kBelowOne || tile == kManyBelow || tile == kBelowNegative)
        x = make(sum, tile == kBelowNegative, variant / 2, r & 1 ? draw() : 0);
      if (tile == kOrder) x = make(sum, n & 1, -4, draw());
      if (tile == kDenormal) x = make(sum, sign(), -sum.bias - sign(), draw());
      if (tile == kZero) x = sign() << (sum.bits - 1);
      if (tile == kOverflow) x = make(sum, r & 2, 200, draw());
    }
  if (tile == kSpecial)
    for (int i = 0; i < 8; ++i) {
      const uint32_t minus = sign();
      if (i % 4 == 3)
        c[between(0, 63)][between(0, 7)] = infinity(sum, i == 7) | minus << (sum.bits - 1);
      else if (i % 2)
        a[between(0, 63)][between(0, depth - 1)] = infinity(fa, i == 5) | minus << (fa.bits - 1);
      else
        b[between(0, depth - 1)][between(0, 7)] = infinity(fb, i == 6) | minus << (fb.bits - 1);
    }
}

void pack(const Shape &s, Input &in) {
  memset(&in, 0, sizeof in);
  const int bytes = s.a.bits / 8, depth = kLine / bytes, each = 4 / bytes;
  const auto place = [&](int line, int k) {
    const int byte = k * bytes;
    return line / 8 * 256 + byte / 16 * 128 + line % 8 * 16 + byte % 16;
  };
  for (int k = 0; k < depth; ++k) {
    for (int r = 0; r < 64; ++r) memcpy(in.a + place(r, k), &a[r][k], bytes);
    for (int n = 0; n < 8; ++n) memcpy(in.b + place(n, k), &b[k][n], bytes);
  }
  for (int t = 0; t < 128; ++t) {
    const int row = t / 32 * 16 + t % 32 / 4, part = t % 4;
    for (int i = 0; i < 4; ++i) {
      for (int e = 0; e < each; ++e)
        in.held[t][i] |= a[row + i % 2 * 8][i / 2 * 4 * each + part * each + e]
                         << (e * s.a.bits % 32);
      const uint32_t x = c[row + i / 2 * 8][part * 2 + i % 2];
      if (s.sum.bits == 16)
        in.d[t][i / 2] |= x << 16 * (i % 2);
      else
        in.d[t][i] = x;
    }
  }
}

int main(int argc, char **) {
  constexpr int tiles = kTiles * kVariants;
  std::vector<Input> in(tiles);
  std::vector<uint32_t> out(tiles * 512);
  Input *on_device_in;
  uint32_t *on_device_out;
  cudaMalloc(&on_device_in, tiles * sizeof(Input));
  cudaMalloc(&on_device_out, out.size() * 4);
  for (const Shape &s : kShapes) {
    for (int i = 0; i < tiles; ++i) {
      state = i + 1;
      fill(s, static_cast<Tile>(i / kVariants), i % kVariants);
      pack(s, in[i]);
    }
    cudaMemcpy(on_device_in, in.data(), tiles * sizeof(Input), cudaMemcpyHostToDevice);
    s.kernel<<<tiles, 128>>>(on_device_in, on_device_out);
    if (cudaMemcpy(out.data(), on_device_out, out.size() * 4, cudaMemcpyDeviceToHost)) {
      fprintf(stderr, "%s: %s\n", s.name, cudaGetErrorString(cudaGetLastError()));
      return 1;
    }
    for (int i = 0; i < tiles; ++i) {
      const uint32_t *const own = out.data() + i * 512;
      uint64_t hash = 14695981039346656037u;
      for (int n = 0; n < 512; ++n) hash = (hash ^ own[n]) * 1099511628211u;
      printf("%s %s %d %016llx", s.name, kNames[i / kVariants], i % kVariants,
             (unsigned long long)hash);
      if (argc > 1) {
        printf(" ");
        for (int n = 0; n < 512; ++n) printf("%08x", own[n]);
      }
      printf("\n");
    }
  }
  return 0;
}
