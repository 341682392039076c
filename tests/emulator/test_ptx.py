"""Inline PTX: literals of every type and sign; forms of instructions that are not emulated."""

import random
import struct

import pytest

from kernelwright import emulator
from kernelwright.emulator import program

pytestmark = [
    pytest.mark.skipif(emulator.missing() is not None, reason=str(emulator.missing())),
    pytest.mark.long,  # a compilation each
]

INTEGERS = ("s16", "u16", "s32", "u32", "s64", "u64", "b16", "b32", "b64")


def bits(value, size):
    return int.from_bytes(struct.pack("<f" if size == 32 else "<d", value), "little")


def floating(draw, size):
    """A floating-point literal and its bits as an operand of .f32 or .f64."""
    value = draw.choice((0.0, 0.1, 1.0, 2.5, 1e-3, 3.0e20, 7.0, draw.uniform(0, 1e6)))
    form = draw.choice(("decimal", "exponent", "bits"))
    if form == "bits":
        letter, digits = ("f", 8) if size == 32 else ("d", 16)
        its = bits(draw.choice((1, -1)) * value, size)
        return f"0{draw.choice((letter, letter.upper()))}{its:0{digits}x}", its
    sign = draw.choice(("", "-"))
    text = f"{value:.6e}" if form == "exponent" else f"{value:.7f}"
    return sign + text, bits(float(sign + text), size)


def integer(draw, size):
    value = draw.choice((0, 1, 7, draw.getrandbits(size), draw.getrandbits(size - 1)))
    sign = draw.choice(("", "-")) if value < 2 ** (size - 1) else ""
    form = draw.choice(("d", "#x", "#o", "#b", "U"))
    text = {"#o": f"0{value:o}", "U": f"{value}U"}.get(form) or format(value, form)
    return sign + text, (-value if sign else value) % 2**size


def statement(draw, n):
    """An asm statement that stores a literal's bits in out[n], and these bits."""
    type_ = draw.choice(("f32", "f64", "f32", "f64", *INTEGERS))
    size = int(type_[1:])
    text, its = (floating if type_[0] == "f" else integer)(draw, size)
    letter = {"f32": "f", "f64": "d"}.get(type_) or {16: "h", 32: "r", 64: "l"}[size]
    own = {"f": "float", "d": "double", "h": "short", "r": "int", "l": "long long"}[letter]
    op = draw.choice(("mov", "selp", "st"))
    if op == "mov":
        code = (
            f'{own} x; asm("mov.{type_} %0, {text};" : "={letter}"(x));'
            f" memcpy(out + {n}, &x, {size // 8});"
        )
    elif op == "selp":
        code = (
            f'{own} x; asm("{{.reg .pred p; setp.eq.s32 p, 1, 1; selp.{type_} %0, {text}, %1, p;}}"'
            f' : "={letter}"(x) : "{letter}"(({own})9)); memcpy(out + {n}, &x, {size // 8});'
        )
    else:
        code = f'asm volatile("st.{type_} [%0], {text};" ::"l"(out + {n}) : "memory");'
    return f"{{ {code} }}", its


@pytest.mark.parametrize("seed", range(3))
def test_literals_of_every_type_and_sign(seed, tmp_path):
    draw = random.Random(seed)
    statements = [statement(draw, n) for n in range(120)]
    lines = "\n".join(code for code, _ in statements)
    expected = ", ".join(f"{its}ull" for _, its in statements)
    file = tmp_path / "literals.cu"
    file.write_text(
        "#include <cstdio>\n#include <cstring>\n"
        f"__global__ void k(unsigned long long *out) {{\n{lines}\n}}\n"
        f"unsigned long long expected[] = {{{expected}}}, got[{len(statements)}];\n"
        "int main() { unsigned long long *out; cudaMalloc(&out, sizeof got);\n"
        "  cudaMemset(out, 0, sizeof got); k<<<1, 1>>>(out);\n"
        "  if (cudaMemcpy(got, out, sizeof got, cudaMemcpyDeviceToHost)) return 9;\n"
        f"  for (int i = 0; i < {len(statements)}; ++i) if (got[i] != expected[i]) return\n"
        '    printf("%d: %llx is not %llx\\n", i, got[i], expected[i]), 1;\n}\n'
    )
    assert program.run(file).code == 0, lines


#: Statements over int x, float f, double d, a shared array s and its address a, and what the
#: message says.
UNKNOWN = {
    'asm("add.f32 %0, %0, 1;" : "+f"(f));': "an integer for .f32",
    'asm("add.s32 %0, %0, 1.5;" : "+r"(x));': "a floating-point number for an integer",
    'asm("mov.f64 %0, 0f3f800000;" : "=d"(d));': "bits of .f32 for .f64",
    'asm("mov.f32 %0, 1.5f;" : "=f"(f));': "its number is not understood",
    'asm("mov.u32 %0, nothing;" : "=r"(x));': "the name nothing",
    'asm("mov.u32 %0, %%nothing;" : "=r"(x));': "the name nothing",
    'asm("mov.u32 %0, %3;" : "=r"(x));': "names the operand %3",
    'asm("add.cc.u32 %0, %0, %0;" : "+r"(x));': ".cc",
    'asm("mul.s32 %0, %0, %0;" : "+r"(x));': "neither .hi nor .lo nor .wide",
    'asm("mad.hi.sat.s32 %0, %0, %0, %0;" : "+r"(x));': ".sat",
    'asm("max.xorsign.abs.f32 %0, %0, %0;" : "+f"(f));': ".xorsign",
    'asm("max.f32 %0, %0, %0, %0;" : "+f"(f));': "4 operands",
    'asm("rsqrt.approx.ftz.f64 %0, %0;" : "+d"(d));': ".f64",
    'asm("lop3.or.b32 %0|p, %0, %0, %0, 3, q;" : "+r"(x));': ".or",
    'asm("cvt.rm.f16.f32 %0, %1;" : "=h"(h) : "f"(f));': ".rm",
    'asm("cvt.pack.sat.u8.s32 %0, %0, %0;" : "+r"(x));': ".pack",
    'asm("@p add.s32 %0, %0, 1;" : "+r"(x));': "there is no predicate p",
    'asm("ld.shared.v2.u32 %0, [%1];" : "=r"(x) : "r"(a));': "a vector of 1",
    'asm("{.reg .b128 r; ld.b128 r, [%0];}" ::"l"(s));': ".b128",
    'asm("ld.param.u32 %0, [%1];" : "=r"(x) : "l"(s));': ".param",
    'asm("red.global.max.f32 [%0], %1;" ::"l"(s), "f"(f));': "this operation of .f32",
    'asm("mbarrier.frobnicate.b64 %0, [%1];" : "=l"(l) : "r"(a));': ".frobnicate",
    'asm("mbarrier.test_wait.tx.b64 p, [%0], %1;" ::"r"(a), "l"(l));': ".tx",
    'asm("bar.red.popc.u32 %0, 1, 32, p;" : "=r"(x));': "the name p is not declared",
    'asm("{.reg .pred p; setp.eq.s32 p, 1, 1; bar.red.popc.u32 %0, 1, 32, p;}" : "=r"(x));':
        "a reduction of a part of the block",
    'asm("mapa.u64 %0, %0, 1;" : "+l"(l));': ".u64",
    'asm("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0}, [%1];" : "=r"(x) : "r"(a));': "ldmatrix",
    'asm("{.reg .pred p; cp.async.ca.shared.global [%0], [%1], 4, p;}" ::"r"(a), "l"(s));':
        "it has no form with a predicate",
}  # fmt: skip


def test_unknown_forms_are_errors_with_their_line(tmp_path, capfd):
    file = tmp_path / "forms.cu"
    head = "int x = 1; float f = 1; double d = 1; long long l = 1; short h = 1;"
    shared = "__shared__ long long s[8]; unsigned a = __cvta_generic_to_shared(s);"
    cases = "".join(f"if (n == {i}) {{\n{code} }}\n" for i, code in enumerate(UNKNOWN))
    file.write_text(
        f"__global__ void k(int n, int *out) {{ {head} {shared}\n{cases}"
        "*out = x + f + d + l + h;\n}\n"
        "#include <cstdlib>\nint main(int, char **v) { int *out; cudaMalloc(&out, 4);\n"
        "  k<<<1, 1>>>(atoi(v[1]), out); return cudaDeviceSynchronize() == cudaSuccess; }\n"
    )
    for i, (code, why) in enumerate(UNKNOWN.items()):
        ran = program.run(file, [str(i)])
        said = ran.notes[0].text if ran.notes else "nothing"
        assert f"forms.cu:{2 * i + 3}" in said, (code, said)
        assert why in said, (code, said)


MBARRIER = r"""
#include <cstdio>
__global__ void k(long long *out) {
  __shared__ unsigned long long bar;
  const unsigned a = (unsigned)__cvta_generic_to_shared(&bar);
  long long state;
  unsigned count, done;
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 3;" ::"r"(a));
  asm volatile("mbarrier.arrive.shared::cta.b64 %0, [%1];" : "=l"(state) : "r"(a));
  asm volatile("mbarrier.pending_count.b64 %0, %1;" : "=r"(count) : "l"(state));
  out[0] = count;
  asm volatile("mbarrier.arrive.shared::cta.b64 %0, [%1];" : "=l"(state) : "r"(a));
  asm volatile("mbarrier.pending_count.b64 %0, %1;" : "=r"(count) : "l"(state));
  out[1] = count;
  asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], 64;" ::"r"(a));
  asm volatile("mbarrier.arrive.shared::cta.b64 %0, [%1];" : "=l"(state) : "r"(a));
#define DONE                                                                              \
  asm volatile("{.reg .pred p; mbarrier.test_wait.shared::cta.b64 p, [%1], %2;"           \
               "selp.u32 %0, 1, 0, p;}" : "=r"(done) : "r"(a), "l"(state))
  DONE;
  out[2] = done;
  asm volatile("mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%0], 64;" ::"r"(a));
  DONE;
  out[3] = done;
}
int main() {
  long long *out, got[4];
  cudaMalloc(&out, sizeof got);
  k<<<1, 1>>>(out);
  cudaMemcpy(got, out, sizeof got, cudaMemcpyDeviceToHost);
  return got[0] == 3 && got[1] == 2 && got[2] == 0 && got[3] == 1 ? 0 : 1;
}
"""


def test_transactions_of_an_mbarrier(tmp_path):
    file = tmp_path / "mbarrier.cu"
    file.write_text(MBARRIER)
    ran = program.run(file)
    assert ran.code == 0 and not ran.notes


ARITHMETIC = r"""
#include <cstdio>
#include <cstring>
#define CHECK(...) if (!(__VA_ARGS__)) *wrong = __LINE__;
__global__ void k(int *wrong, float tiny, double third, float one) {
  float f;
  double d, e;
  unsigned u;
  long long l;
  asm("add.rp.f32 %0, %1, %2;" : "=f"(f) : "f"(one), "f"(tiny));
  CHECK(f > 1);
  asm("add.rz.f32 %0, %1, %2;" : "=f"(f) : "f"(one), "f"(-tiny));
  CHECK(f < 1);
  asm("mul.rm.f64 %0, %2, 3.0; mul.rp.f64 %1, %2, 3.0;" : "=d"(d), "=d"(e) : "d"(third));
  CHECK(d < e);
  asm("copysign.f64 %0, %1, %2;" : "=d"(d) : "d"(-1.0), "d"(third));
  CHECK(d == -third);
  asm("mul24.hi.u32 %0, %1, %1;" : "=r"(u) : "r"(0xffffff));
  CHECK(u == 0xfffffe00u);
  asm("{.reg .pred p; setp.eq.ftz.f32 p, %1, 0.0; selp.u32 %0, 1, 0, p;}" : "=r"(u) : "f"(1e-40f));
  CHECK(u == 1);
  asm("cvt.sat.u64.s64 %0, %1;" : "=l"(l) : "l"(-5ll));
  CHECK(l == 0);
  asm("cvt.sat.s64.u64 %0, %1;" : "=l"(l) : "l"(-5ll));
  CHECK(l == 0x7fffffffffffffffll);
  asm("cvt.rp.f32.s64 %0, %1;" : "=f"(f) : "l"((1ll << 62) + 1));
  CHECK(f > 0x1p62f);
  asm("cvt.rz.f64.u64 %0, %1;" : "=d"(d) : "l"(-1ll));
  CHECK(d < 0x1p64);
}
int main() {
  int *wrong, line = 0;
  cudaMalloc(&wrong, 4);
  cudaMemset(wrong, 0, 4);
  k<<<1, 1>>>(wrong, 1e-20f, 1.0 / 3, 1);
  if (cudaMemcpy(&line, wrong, 4, cudaMemcpyDeviceToHost)) return 9;
  if (line) printf("line %d is wrong\n", line);
  return line ? 1 : 0;
}
"""


def test_rounding_and_saturation(tmp_path):
    file = tmp_path / "arithmetic.cu"
    file.write_text(ARITHMETIC)
    assert program.run(file).code == 0
