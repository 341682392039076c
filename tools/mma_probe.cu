// Which bits mma.sync gives on tiles that tell roundings apart: cancellation, terms just below the
// accumulator's last bit, infinities, denormals. One line per tile: its name and a hash of the 128
// results; with an argument, the results too.
//
//     nvcc -arch=sm_90 tools/mma_probe.cu -o mma_probe && ./mma_probe > mma.txt      on a GPU
//     kernelwright run tools/mma_probe.cu > mma.txt                                  in the
//     emulator
#include <cstdint>
#include <cstdio>
#include <cstring>

#define PROBE(name, a, b, c, text)                                                           \
  __global__ void name(const uint32_t *in, uint32_t *out) {                                  \
    const uint32_t *p = in + threadIdx.x * 12;                                               \
    uint32_t d0 = 0, d1 = 0, d2 = 0, d3 = 0;                                                 \
    text;                                                                                    \
    out[threadIdx.x * 4] = d0, out[threadIdx.x * 4 + 1] = d1, out[threadIdx.x * 4 + 2] = d2, \
                      out[threadIdx.x * 4 + 3] = d3;                                         \
  }
#define A4B2(instruction)                                                                     \
  asm volatile(instruction " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%11,%12,%13};"       \
               : "=r"(d0), "=r"(d1), "=r"(d2), "=r"(d3)                                       \
               : "r"(p[0]), "r"(p[1]), "r"(p[2]), "r"(p[3]), "r"(p[4]), "r"(p[5]), "r"(p[8]), \
                 "r"(p[9]), "r"(p[10]), "r"(p[11]))
#define A2B1(instruction)                                                   \
  asm volatile(instruction " {%0,%1,%2,%3}, {%4,%5}, {%6}, {%7,%8,%9,%10};" \
               : "=r"(d0), "=r"(d1), "=r"(d2), "=r"(d3)                     \
               : "r"(p[0]), "r"(p[1]), "r"(p[4]), "r"(p[8]), "r"(p[9]), "r"(p[10]), "r"(p[11]))
#define A4B2_HALF(instruction)                                                                \
  asm volatile(instruction " {%0,%1}, {%2,%3,%4,%5}, {%6,%7}, {%8,%9};"                       \
               : "=r"(d0), "=r"(d1)                                                           \
               : "r"(p[0]), "r"(p[1]), "r"(p[2]), "r"(p[3]), "r"(p[4]), "r"(p[5]), "r"(p[8]), \
                 "r"(p[9]))
#define A2B1_HALF(instruction)                                 \
  asm volatile(instruction " {%0,%1}, {%2,%3}, {%4}, {%5,%6};" \
               : "=r"(d0), "=r"(d1)                            \
               : "r"(p[0]), "r"(p[1]), "r"(p[4]), "r"(p[8]), "r"(p[9]))

PROBE(f16_k8, 2, 1, 4, A2B1("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32"))
PROBE(f16_k16, 4, 2, 4, A4B2("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"))
PROBE(bf16_k8, 2, 1, 4, A2B1("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32"))
PROBE(bf16_k16, 4, 2, 4, A4B2("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"))
PROBE(tf32_k4, 2, 1, 4, A2B1("mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32"))
PROBE(tf32_k8, 4, 2, 4, A4B2("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32"))
PROBE(half_k8, 2, 1, 2, A2B1_HALF("mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16"))
PROBE(half_k16, 4, 2, 2, A4B2_HALF("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16"))
PROBE(e4m3_k32, 4, 2, 4, A4B2("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32"))
PROBE(e5m2_k32, 4, 2, 4, A4B2("mma.sync.aligned.m16n8k32.row.col.f32.e5m2.e5m2.f32"))
PROBE(s8_k16, 2, 1, 4, A2B1("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32"))
PROBE(u8_k32, 4, 2, 4, A4B2("mma.sync.aligned.m16n8k32.row.col.s32.u8.u8.s32"))

struct Format {
  int bits, mantissa, bias;  // of a number; no bias for integers
};
struct Shape {
  const char *name;
  void (*kernel)(const uint32_t *, uint32_t *);
  int k;
  Format in, sum;
};
const Format kHalf = {16, 10, 15}, kBfloat = {16, 7, 127}, kSingle = {32, 23, 127};
const Shape kShapes[] = {
    {"f16_k8", f16_k8, 8, kHalf, kSingle},          {"f16_k16", f16_k16, 16, kHalf, kSingle},
    {"bf16_k8", bf16_k8, 8, kBfloat, kSingle},      {"bf16_k16", bf16_k16, 16, kBfloat, kSingle},
    {"tf32_k4", tf32_k4, 4, kSingle, kSingle},      {"tf32_k8", tf32_k8, 8, kSingle, kSingle},
    {"half_k8", half_k8, 8, kHalf, kHalf},          {"half_k16", half_k16, 16, kHalf, kHalf},
    {"e4m3_k32", e4m3_k32, 32, {8, 3, 7}, kSingle}, {"e5m2_k32", e5m2_k32, 32, {8, 2, 15}, kSingle},
    {"s8_k16", s8_k16, 16, {8, 0, 0}, {32, 0, 0}},  {"u8_k32", u8_k32, 32, {8, 0, 0}, {32, 0, 0}},
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
  kSpecial,
  kOverflow,
  kTiles
};
const char *const kNames[] = {"near", "wide",  "cancel",   "below",   "below_negative",
                              "many", "order", "denormal", "special", "overflow"};

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

uint32_t a[16][32], b[32][8], c[16][8];

void fill(const Shape &s, Tile tile, int variant) {
  const Format &in = s.in, &sum = s.sum;
  const bool small = in.bits == 8;
  const int reach = small ? 3 : in.bias == 15 ? 7 : 12;
  for (int r = 0; r < 16; ++r)
    for (int k = 0; k < s.k; ++k) a[r][k] = make(in, draw() & 1, between(-2, 2), draw());
  for (int k = 0; k < s.k; ++k)
    for (int n = 0; n < 8; ++n) b[k][n] = make(in, draw() & 1, between(-2, 2), draw());
  for (int r = 0; r < 16; ++r)
    for (int n = 0; n < 8; ++n) c[r][n] = make(sum, draw() & 1, between(-3, 5), draw());
  if (!in.bias) {  // integers: any
    for (auto &row : a)
      for (uint32_t &x : row) x = draw() & 0xff;
    for (auto &row : b)
      for (uint32_t &x : row) x = draw() & 0xff;
    for (auto &row : c)
      for (uint32_t &x : row) x = tile == kNear ? draw() << 1 : draw() % 100000;
    return;
  }
  for (int r = 0; r < 16; ++r)
    for (int k = 0; k < s.k; ++k) {
      uint32_t &x = a[r][k];
      if (tile == kWide) x = make(in, draw() & 1, between(-reach, reach), draw());
      if (tile == kCancel && k % 2) x = a[r][k - 1] ^ 1u << (in.bits - 1);
      if (tile == kBelowOne || tile == kBelowNegative)
        x = k == variant % s.k ? make(in, (r ^ (tile == kBelowNegative)) & 1, -(r / 2 + 4), 0) : 0;
      if (tile == kManyBelow) x = make(in, variant & 1, -(r + 1) / 2 - 2, variant & 2 ? draw() : 0);
      if (tile == kOrder)
        x = make(in, k == (variant * 5 + 3) % s.k,
                 k == variant % s.k || k == (variant * 5 + 3) % s.k ? reach : -r / 3, 0);
      if (tile == kDenormal) x = make(in, draw() & 1, -in.bias - (draw() & 1), draw());
      if (tile == kOverflow) x = make(in, r & 1, 200, draw());
    }
  for (int k = 0; k < s.k; ++k)
    for (int n = 0; n < 8; ++n) {
      uint32_t &x = b[k][n];
      if (tile == kWide) x = make(in, draw() & 1, between(-reach, reach), draw());
      if (tile == kCancel && k % 2) {
        x = b[k - 1][n];
        if (k == 2 * (variant % (s.k / 2)) + 1) x ^= 1;  // all but one pair cancel
      }
      if (tile == kBelowOne || tile == kBelowNegative)
        x = make(in, 0, -(n + reach), n & 1 ? draw() : 0);
      if (tile == kManyBelow) x = make(in, 0, -(n + reach), 0);
      if (tile == kOrder) x = make(in, 0, n / 2, 0);
      if (tile == kOverflow) x = make(in, 0, 200, draw());
    }
  for (int r = 0; r < 16; ++r)
    for (int n = 0; n < 8; ++n) {
      uint32_t &x = c[r][n];
      if (tile == kWide) x = make(sum, draw() & 1, between(-2 * reach, 2 * reach), draw());
      if (tile == kBelowOne || tile == kManyBelow) x = make(sum, 0, 0, r & 1 ? draw() : 0);
      if (tile == kBelowNegative) x = make(sum, 1, 0, r & 1 ? draw() : 0);
      if (tile == kOrder) x = make(sum, n & 1, -4, draw());
      if (tile == kDenormal) x = make(sum, draw() & 1, -sum.bias - (draw() & 1), draw());
      if (tile == kOverflow) x = make(sum, r & 2, 200, draw());
    }
  if (tile == kSpecial)
    for (int i = 0; i < 6; ++i) {
      const int width = in.bits - 1 - in.mantissa;
      const uint32_t infinite =
          ((1u << width) - 1) << in.mantissa | (i == 5) | (draw() & 1) << (in.bits - 1);
      if (i % 2)
        a[between(0, 15)][between(0, s.k - 1)] = infinite;
      else
        b[between(0, s.k - 1)][between(0, 7)] = infinite;
    }
}

// The registers of each lane: 8 of A and B, 4 of C.
void pack(const Shape &s, uint32_t *registers) {
  const int each = 32 / s.in.bits, na = 16 * s.k / each / 32, nb = 8 * s.k / each / 32;
  memset(registers, 0, 32 * 12 * 4);
  for (int lane = 0; lane < 32; ++lane) {
    const int g = lane / 4, t = lane % 4;
    uint32_t *p = registers + lane * 12;
    for (int i = 0; i < na; ++i)
      for (int e = 0; e < each; ++e)
        p[i] |= a[g + 8 * (i & 1)][(i >> 1) * 4 * each + t * each + e] << (e * s.in.bits % 32);
    for (int i = 0; i < nb; ++i)
      for (int e = 0; e < each; ++e)
        p[4 + i] |= b[i * 4 * each + t * each + e][g] << (e * s.in.bits % 32);
    for (int i = 0; i < 4; ++i) {
      const uint32_t x = c[g + 8 * (i / 2)][t * 2 + i % 2];
      if (s.sum.bits == 16)
        p[8 + i / 2] |= x << 16 * (i % 2);
      else
        p[8 + i] = x;
    }
  }
}

int main(int argc, char **) {
  uint32_t in[32 * 12], out[32 * 4], *on_device_in, *on_device_out;
  cudaMalloc(&on_device_in, sizeof in);
  cudaMalloc(&on_device_out, sizeof out);
  for (const Shape &s : kShapes)
    for (int tile = 0; tile < kTiles; ++tile)
      for (int variant = 0; variant < 12; ++variant) {
        state = tile * 100 + variant + 1;
        fill(s, static_cast<Tile>(tile), variant);
        pack(s, in);
        cudaMemcpy(on_device_in, in, sizeof in, cudaMemcpyHostToDevice);
        s.kernel<<<1, 32>>>(on_device_in, on_device_out);
        if (cudaMemcpy(out, on_device_out, sizeof out, cudaMemcpyDeviceToHost)) {
          fprintf(stderr, "%s: %s\n", s.name, cudaGetErrorString(cudaGetLastError()));
          return 1;
        }
        uint64_t hash = 14695981039346656037u;
        for (const uint32_t x : out) hash = (hash ^ x) * 1099511628211u;
        printf("%s %s %d %016llx", s.name, kNames[tile], variant, (unsigned long long)hash);
        if (argc > 1) {
          printf(" ");
          for (const uint32_t x : out) printf("%08x", x);
        }
        printf("\n");
      }
  return 0;
}
