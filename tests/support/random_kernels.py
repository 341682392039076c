"""Random programs with barriers: loops and conditions around them, variables of all kinds, indices
of several forms, instructions of PTX. They have no races, so their results do not depend on the
schedule."""

import random

_BLOCKS = [(64, 1), (96, 1), (256, 1), (32, 4), (16, 16), (20, 3), (7, 5)]
_HEAD = """#include <cstdio>
#include <vector>
#define K 4
#define SQUARE(x) ((x) * (x))
__device__ int mix(int x, int y) { return (x << 3) ^ (y >> 2) ^ (x * y); }
__device__ int warp_sum(int x) {
  for (int i = 16; i > 0; i /= 2) x += __shfl_xor_sync(~0u, x, i);
  return x;
}
__device__ void bump(int &x) { x = x * 3 + threadIdx.x; }
#define ROTATED(to, x, n) asm("shf.l.wrap.b32 %0, %1, %1, %2;" : "=r"(to) : "r"(x), "r"(n))
__device__ int field(int x) {
  int y;
  asm("bfe.s32 %0, %1, 3, 9;" : "=r"(y) : "r"(x));
  return y;
}
__device__ void tripled(int &x, int y) {
  asm volatile("{ .reg .s32 u; add.s32 u, %0, %1; mad.lo.s32 %0, u, 3, %1; }" : "+r"(x) : "r"(y));
}
#define FAST 1
__device__ int folded(int x) {
  if (blockIdx.x % 2) return x * 3;
  x += __shfl_down_sync(~0u, x, 8);
  if (x == 12345) return 7;
  return x;
}
__device__ unsigned folded(unsigned x) { return __shfl_xor_sync(~0u, x, 2) + 5; }
__device__ int folded(int x, int y) { return __shfl_sync(~0u, x + y, 3); }
template <typename T> __device__ T block_sum(T x, int t, int n) {
  __shared__ T part[512];
#ifdef SLOW
  part[t] = 0;
#elif FAST
  part[t] = x;
#endif
  __syncthreads();
  x = part[n - 1 - t];
  for (int i = 0; i < 4; ++i) x += part[(t + i) % n];
  __syncthreads();
  return x;
}
__device__ void exchange(int &x, int &y, int lane) {
  x = __shfl_xor_sync(~0u, x, lane);
  y = max(x, y);
}
__device__ int raised(int *at, int x) {
  int old = *at, assumed;
  do {
    assumed = old;
    old = atomicCAS(at, assumed, max(assumed, x));
  } while (assumed != old);
  return 0;
}
#define AT(p) (unsigned)__cvta_generic_to_shared(p)
#define COPY(to, from) \\
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(AT(to)), "l"(from) : "memory")
__device__ int rows(const int *s) {
  int y;
  asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];"
               : "=r"(y) : "r"(AT(s + threadIdx.x % 8 * 4)));
  return y;
}
#define MMA(c, a, b) \\
  asm volatile("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, " \\
               "{%0,%1,%2,%3};" : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3]) \\
               : "r"(a), "r"(b), "r"(a ^ b))
"""
_MAIN = """int main() {
  int *in, *out;
  cudaMalloc(&in, 4096 * 4);
  cudaMalloc(&out, 4096 * 4);
  std::vector<int> values(4096);
  for (int i = 0; i < 4096; ++i) values[i] = i * 2654435761u >> 7;
  cudaMemcpy(in, values.data(), 4096 * 4, cudaMemcpyHostToDevice);
"""
_CALL = """  cudaMemset(out, 0, 4096 * 4);
  {name}<<<3, dim3({x}, {y})>>>(in, out, {n}, {m});
  cudaMemcpy(values.data(), out, 4096 * 4, cudaMemcpyDeviceToHost);
  {{
    unsigned long long sum = 0;
    for (int v : values) sum = sum * 1099511628211ull + unsigned(v);
    printf("{name} %d %llx\\n", int(cudaGetLastError()), sum);
  }}
"""


def program(seed: int, kernels: int) -> str:
    rng = random.Random(seed)
    made, calls = [_HEAD], [_MAIN]
    for i in range(kernels):
        x, y = rng.choice(_BLOCKS)
        made.append(_Kernel(rng, f"k{i}", x, y).text())
        n, m = rng.randint(1, 9), rng.randint(1, 9)
        calls.append(_CALL.format(name=f"k{i}", x=x, y=y, n=n, m=m))
    return "\n".join([*made, "".join(calls) + "}\n"])


class _Kernel:
    def __init__(self, rng: random.Random, name: str, x: int, y: int) -> None:
        self.rng, self.name, self.threads, self.flat = rng, name, x * y, y == 1
        self.warp = rng.random() < 0.6 and x * y % 32 == 0
        self.own, self.same = ["a", "b"], ["n", "m", "q"]  # per-thread values, uniform values
        self.count = 0
        self.whole = True  # no thread has ended

    def text(self) -> str:
        rng, n = self.rng, self.threads
        flat = self.flat and rng.random() < 0.5
        index = "threadIdx.x" if flat else "threadIdx.y * blockDim.x + threadIdx.x"
        return "\n".join(
            [
                f"__global__ void {self.name}(const int *in, int *out, int n, int m) {{",
                f"  __shared__ int s[{n}];",
                f"  constexpr int N = {n};",
                f"  {rng.choice(['int', 'const int'])} t = {index};",
                "  int a = t, b = in[t], q = n, i;",
                "  unsigned c = t * 3;",
                f"  int w[4] = {{1, 2, {rng.randint(0, 9)}}};",
                "  s[t] = 0;",
                "  __syncthreads();",
                *self.statements(rng.randint(6, 12), "  ", 0),
                "  for (i = 0; i < 4; ++i) a = a * 31 + w[i];",
                "  out[blockIdx.x * N + t] = a * 7 + b + q;",
                "}",
            ]
        )

    def fresh(self, kind: str) -> str:
        self.count += 1
        return f"{kind}{self.count}"

    def common(self) -> str:
        """An expression that is the same for all threads."""
        rng, v = self.rng, self.rng.choice(self.same)
        number = rng.randint(1, 9)
        forms = [v, str(number), f"({v} + {number})", "(int)blockIdx.x", "(int)gridDim.x", "K"]
        return rng.choice([*forms, f"min({v}, {number})", f"SQUARE({v})"])

    def index(self) -> str:
        n, same = self.rng.randint(0, 9), self.common()
        forms = ["t", "(N - 1 - t)", f"((t + {same}) % N)", f"((t * 5 + {n}) % N)", "(t ^ 1) % N"]
        return self.rng.choice([*forms, "(t / 2)", "((t % 32) * 2 % N)", "((int)threadIdx.x % K)"])

    def value(self, depth: int = 0) -> str:
        rng, own = self.rng, self.rng.choice(self.own)
        if depth < 3 and rng.random() < 0.4:
            x, y = self.value(depth + 1), self.value(depth + 1)
            return rng.choice([f"({x} + {y})", f"({x} * 5 - {y})", f"mix({x}, {own})"])
        forms = [own, self.common(), f"in[{self.index()}]", "t", f"w[{rng.randint(0, 3)}]"]
        return rng.choice([*forms, f"({own} ^ {self.common()})"])

    def statements(self, number: int, indent: str, depth: int) -> list[str]:
        kinds = [self.declares, self.assigns, self.chooses, self.repeats, self.meets, self.meets]
        kinds += [self.fills, self.steps, self.points, self.calls]
        kinds += [self.shuffles, self.warps] if self.warp else []
        kinds += [self.instructions, self.copies]
        kinds += [self.matrices] if self.warp and self.flat and self.whole else []
        kinds += [self.leaves] if depth == 0 else []
        kinds += [self.loops, self.branches] if depth < 2 else []
        own, same = list(self.own), list(self.same)
        made: list[str] = []
        for _ in range(number):
            lines = self.rng.choice(kinds)(depth)
            made += [line if line[0] == "#" else indent + line for line in lines]
        self.own, self.same = own, same
        return made

    def declares(self, _: int) -> list[str]:
        if self.rng.random() < 0.4:
            name, value = self.fresh("u"), self.common()
            self.same.append(name)
            return [f"const int {name} = {value};"]
        name, value = self.fresh("p"), self.value()
        type_ = self.rng.choice(["int", "const int", "auto", "unsigned"])
        self.own.append(name)
        return [f"{type_} {name} = 0 + {value};"]

    def assigns(self, _: int) -> list[str]:
        mark = self.rng.choice(["+=", "=", "^=", "-="])
        return [f"{self.rng.choice(['a', 'b'])} {mark} {self.value()};"]

    def chooses(self, _: int) -> list[str]:
        x, y, z = self.value(), self.value(), self.value()
        return [f"if ({x} & 1) {{ a += {y}; }} else b ^= {z};"]

    def repeats(self, _: int) -> list[str]:
        return [f"for (int i = 0; i < {self.common()} % 5; ++i) a += {self.value()} + i;"]

    def fills(self, _: int) -> list[str]:
        x = self.value()
        return [f"for (int i = 0; i < 4; ++i) {{ w[i] = {x}; if (i == b % 3) continue; ++w[i]; }}"]

    def calls(self, _: int) -> list[str]:
        """Functions with barriers of their own, and conditions of the preprocessor."""
        target, value = self.rng.choice(["a", "b"]), self.value()
        o = self.fresh("o")
        whole = [f"{target} ^= block_sum<int>({value}, t, N);"] if self.whole else []
        forms = [
            ["#if FAST", *self.meets(0), "#else", f"{target} = 0;", "#endif"],
            ["#ifdef SLOW", f"{target} = 0;", "#endif", *self.meets(0)],
            ["__syncthreads();", f"for (i = 0; i < 3; i += 1) {target} += s[(t + i) % N];"],
            ['asm volatile("bar.sync 0;" ::: "memory");', f"s[t] = {value};",
             'asm volatile("barrier.sync 0;");', f"{target} += s[{self.index()}];"],
            ["__syncthreads();", f"int {o} = t % 3;",
             f"while ({o} < 4) {{",
             f"  atomicAdd(&s[{o}], {value}); ++{o};",
             "}",
             "__syncthreads();", f"{target} ^= s[3];"],
            ["__syncthreads();", f"raised(&s[t % 5], {value});", "__syncthreads();",
             f"{target} ^= s[t % 5];"],
            whole, whole,
        ]  # fmt: skip
        return self.rng.choice(forms)

    def meets(self, _: int) -> list[str]:
        value, target = self.value(), self.rng.choice(["a", "b"])
        read = f"{target} += s[{self.index()}];"
        return ["__syncthreads();", f"s[t] = {value};", "__syncthreads();", read]

    def shuffles(self, _: int) -> list[str]:
        target, value, n = self.rng.choice(["a", "b"]), self.value(), self.rng.randint(0, 31)
        forms = [
            f"__shfl_xor_sync(~0u, {value}, {n})",
            f"__shfl_down_sync(~0u, {value}, {self.common()} & 15, 16)",
            f"__shfl_up_sync(~0u, {value}, {n})",
            f"__shfl_sync(~0u, {value}, {self.value()})",
            f"int(__ballot_sync(~0u, {value} & 1))",
            f"__any_sync(~0u, {value} % 5 == 1)",
            f"int(__reduce_max_sync(~0u, {value}))",
            f"warp_sum({value})",
            f"warp_sum({value} - __shfl_xor_sync(~0u, {target}, 1))",
            "folded(a)",
            f"folded(a, {self.common()})",
            "int(folded(c))",
        ]
        mark = self.rng.choice(["+=", "=", "^="])
        if self.rng.random() < 0.1:
            return [f"exchange(w[{self.rng.randint(0, 3)}], {target}, {n});"]
        return [f"{target} {mark} {self.rng.choice(forms)};"]

    def warps(self, depth: int) -> list[str]:
        """What some warps do, or some lanes."""
        inside = [*self.assigns(depth), *self.shuffles(depth)]
        forms = [
            [f"if (t / 32 == {self.rng.randint(0, 2)}) {{", *inside, "} else a += 3;"],
            [f"for (int r = t / 32; r < {self.rng.randint(1, 6)}; r += 2) {{", *inside, "}"],
            [f"if ({self.value()} & 1) {{ unsigned u = __activemask(); b += __popc(u); }}"],
        ]
        return [*self.rng.choice(forms), "__syncthreads();"]

    def instructions(self, _: int) -> list[str]:
        x, target = self.value(), self.rng.choice(["a", "b"])
        forms = [
            f"ROTATED({target}, {x}, {self.common()});",
            f"{target} += field({x});",
            f"tripled({target}, {x});",
            f'asm volatile("lop3.b32 %0, %0, %1, %2, 0x6a;" : "+r"({target}) : "r"({x}), "r"(t));',
            f'if (t % 3) asm("prmt.b32 %0, %1, %2, 0x1a05;" : "=r"(w[1]) : "r"({x}), "r"(t));',
        ]
        return [self.rng.choice(forms)]

    def copies(self, _: int) -> list[str]:
        begin = ["__syncthreads();", f"COPY(&s[t], in + {self.index()});"]
        wait = self.rng.choice(["wait_all", "commit_group; cp.async.wait_group 0"])
        wait = f'asm volatile("cp.async.{wait};" ::: "memory");'
        return [*begin, *self.instructions(0), wait, "__syncthreads();", "b ^= s[(t + 1) % N];"]

    def matrices(self, _: int) -> list[str]:
        if not self.whole:
            return self.meets(0)
        c, target = self.fresh("c"), self.rng.choice(["a", "b"])
        load = ["__syncthreads();", f"{target} ^= rows(s);", "__syncthreads();"]
        product = [f"int {c}[4] = {{1, t, 3, {self.common()}}};", f"MMA({c}, a, b);"]
        product.append(f"{target} += {c}[0] - {c}[1] * 3 + {c}[2] * 5 - {c}[3] * 7;")
        return self.rng.choice([load, product])

    def steps(self, _: int) -> list[str]:
        return [f"q += {self.common()};"]

    def points(self, _: int) -> list[str]:
        return [f"{{ int *z = &b; *z += {self.value()}; bump(a); }}"]

    def leaves(self, _: int) -> list[str]:
        if self.rng.random() < 0.3:
            return [f"if ({self.common()} > 40) return;"]
        self.whole = False
        return [f"if ({self.value()} % 17 == 3) return;"]

    def loops(self, depth: int) -> list[str]:
        name = self.fresh("i")
        head = f"for (int {name} = 0; {name} < {self.rng.randint(1, 3)}; ++{name}) {{"
        self.same.append(name)
        inside = self.statements(self.rng.randint(2, 4), "  ", depth + 1)
        self.same.remove(name)
        return [head, *inside, "  __syncthreads();", "}"]

    def branches(self, depth: int) -> list[str]:
        made = [f"if ({self.common()} % 2) {{", *self.statements(3, "  ", depth + 1)]
        made.append("  __syncthreads();")
        if self.rng.random() < 0.5:
            made += ["} else {", *self.statements(2, "  ", depth + 1)]
        return [*made, "}"]
