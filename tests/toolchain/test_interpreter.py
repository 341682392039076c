"""Plans on CPU tensors, and the errors of triton's interpreter without the fixes."""

import math
import os
import re
import subprocess
import sys
from types import FunctionType, SimpleNamespace

import mpmath
import pytest
import torch

from kernelwright import toolchain
from kernelwright.contract import (
    Launch,
    NumbaKernel,
    Plan,
    Scratch,
    TensorSpec,
    TritonKernel,
    f32,
    i32,
    i64,
)
from kernelwright.support.errors import ToolchainError
from kernelwright.toolchain import interpreter, libdevice, modes, numba_rt
from support.paths import TESTS
from support.planning import CPU, cuda_plan, no_gpu, scale_cu, scaling  # noqa: F401


def _one(exact, *points):
    return 1, [(float(x),) for x in points or (0.3, 0.7, 0.9, 0.125)], exact


def _two(exact, *points):
    return 2, points or [(0.3, 0.7), (2.5, -1.5), (7.0, 2.0), (0.125, 4.0)], exact


def _norm(*x):
    return math.sqrt(math.fsum(v * v for v in x))


def _more(exact):
    count = exact.__code__.co_argcount
    return count, [(0.3, 0.7, -1.1, 2.0)[:count], (2.5, -1.5, 0.25, 1.0)[:count]], exact


ROUND = (0.5, 1.5, 2.5, -0.5, -2.5, 3.2, -3.7)
ANY = (0.3, -0.7, 2.5, -3.0)
LARGE = (1.0, 1.5, 3.0, 20.0)
ODD = (0.0, -0.0, 1.0, -2.0, math.inf, -math.inf, math.nan)
#: Each function in Python's mathematics, its number of arguments, and where it is tested.
LIBDEVICE = {
    "abs": _one(abs, *ANY), "floor": _one(math.floor, *ROUND), "ceil": _one(math.ceil, *ROUND),
    "trunc": _one(math.trunc, *ROUND), "rint": _one(round, *ROUND),
    "nearbyint": _one(round, *ROUND), "llrint": _one(round, *ROUND),
    "round": _one(lambda x: math.copysign(math.floor(abs(x) + 0.5), x), *ROUND),
    "llround": _one(lambda x: math.copysign(math.floor(abs(x) + 0.5), x), *ROUND),
    "copysign": _two(math.copysign), "signbit": _one(lambda x: math.copysign(1, x) < 0, *ODD),
    "saturatef": _one(lambda x: 0.0 if math.isnan(x) else min(max(x, 0.0), 1.0), *ODD),
    "isnan": _one(math.isnan, *ODD), "isinf": _one(math.isinf, *ODD),
    "isfinited": _one(math.isfinite, *ODD), "finitef": _one(math.isfinite, *ODD),
    "add_rn": _two(lambda x, y: x + y), "sub_rn": _two(lambda x, y: x - y),
    "mul_rn": _two(lambda x, y: x * y), "div_rn": _two(lambda x, y: x / y),
    "rcp_rn": _one(lambda x: 1 / x), "sqrt_rn": _one(math.sqrt),
    "rsqrt_rn": _one(lambda x: 1 / math.sqrt(x)),
    "fma": _more(lambda x, y, z: x * y + z), "fma_rn": _more(lambda x, y, z: x * y + z),
    "fast_dividef": _two(lambda x, y: x / y), "fdim": _two(lambda x, y: max(x - y, 0.0)),
    "fmod": _two(math.fmod), "remainder": _two(math.remainder, (7.0, 2.0), (5.0, 2.0), (-7.5, 2.0)),
    "sqrt": _one(math.sqrt), "rsqrt": _one(lambda x: 1 / math.sqrt(x)),
    "cbrt": _one(lambda x: math.copysign(abs(x) ** (1 / 3), x), *ANY),
    "rcbrt": _one(lambda x: x ** (-1 / 3)),
    "hypot": _two(math.hypot), "rhypot": _two(lambda x, y: 1 / math.hypot(x, y)),
    "norm3d": _more(lambda a, b, c: _norm(a, b, c)),
    "norm4d": _more(lambda a, b, c, d: _norm(a, b, c, d)),
    "rnorm3d": _more(lambda a, b, c: 1 / _norm(a, b, c)),
    "rnorm4d": _more(lambda a, b, c, d: 1 / _norm(a, b, c, d)),
    "exp": _one(math.exp, *ANY), "exp2": _one(lambda x: 2.0**x, *ANY),
    "exp10": _one(lambda x: 10.0**x, *ANY), "expm1": _one(math.expm1, 1e-6, *ANY),
    "log": _one(math.log, *LARGE), "log2": _one(math.log2, *LARGE),
    "log10": _one(math.log10, *LARGE), "log1p": _one(math.log1p, 1e-6, *LARGE),
    "logb": _one(lambda x: math.frexp(x)[1] - 1 if x else -math.inf, 0.3, 5.0, -8.0, 0.0),
    "pow": _two(math.pow, (0.3, 0.7), (2.5, -1.5), (-3.0, 2.0)),
    "fast_expf": _one(math.exp, *ANY), "fast_exp10f": _one(lambda x: 10.0**x, *ANY),
    "fast_logf": _one(math.log, *LARGE), "fast_log2f": _one(math.log2, *LARGE),
    "fast_log10f": _one(math.log10, *LARGE), "fast_powf": _two(math.pow, (0.3, 0.7), (2.5, -1.5)),
    **{n: _one(getattr(math, n), *ANY) for n in ("sin", "cos", "tan", "atan", "sinh", "cosh")},
    **{n: _one(getattr(math, n)) for n in ("asin", "acos", "atanh")},
    **{n: _one(getattr(math, n), *ANY) for n in ("tanh", "asinh", "erf", "erfc")},
    "sinpi": _one(lambda x: float(mpmath.sinpi(x)), 0.3, 0.5, 1e4 + 0.25),
    "cospi": _one(lambda x: float(mpmath.cospi(x)), 0.3, 0.125, 1e4 + 0.25),
    "atan2": _two(math.atan2), "acosh": _one(math.acosh, *LARGE),
    "fast_sinf": _one(math.sin, *ANY), "fast_cosf": _one(math.cos, *ANY),
    "fast_tanf": _one(math.tan, *ANY),
    "erfinv": _one(lambda x: float(mpmath.erfinv(x))),
    "erfcx": _one(lambda x: float(mpmath.exp(x * x) * mpmath.erfc(x))),
    "erfcinv": _one(lambda x: float(mpmath.erfinv(1 - mpmath.mpf(x)))),
    "normcdf": _one(lambda x: float(mpmath.ncdf(x)), *ANY),
    "normcdfinv": _one(lambda x: math.sqrt(2) * float(mpmath.erfinv(2 * mpmath.mpf(x) - 1))),
    "lgamma": _one(math.lgamma, 0.3, 5.5, -1.5), "tgamma": _one(math.gamma, 0.3, 5.5, -1.5, -2.5),
    "j0": _one(lambda x: float(mpmath.besselj(0, x))),
    "j1": _one(lambda x: float(mpmath.besselj(1, x))),
    "y0": _one(lambda x: float(mpmath.bessely(0, x))),
    "y1": _one(lambda x: float(mpmath.bessely(1, x))),
    "cyl_bessel_i0": _one(lambda x: float(mpmath.besseli(0, x))),
    "cyl_bessel_i1": _one(lambda x: float(mpmath.besseli(1, x))),
}  # fmt: skip


@pytest.fixture
def kernels():
    toolchain.prepare("triton")
    from support import interpreted_kernels

    return interpreted_kernels


def run(fn, *values, grid=(1, 1, 1), **constexprs):
    kernel = TritonKernel(fn, constexprs)
    interpreter.launch(kernel, Launch(kernel, grid, ()), list(values))


@no_gpu
class TestRepairs:
    """Each test fails without the fixes: see test_repairs_are_made_where_they_are_needed."""

    def test_bfloat16_arithmetic(self, kernels):
        x = torch.randn(64).bfloat16()
        y = torch.empty_like(x)
        run(kernels.bfloat16_arithmetic, x, y, N=64)
        square = (x * x).float()  # each step rounds, as on a GPU
        assert torch.equal(y, (torch.where(x > 0.5, square, -x.float()).bfloat16() + 1))

    def test_bfloat16_reductions_and_scans(self, kernels):
        x = torch.randn(64).bfloat16()
        y, z = torch.empty(1).bfloat16(), torch.empty_like(x)
        run(kernels.bfloat16_reductions, x, y, z, N=64)
        torch.testing.assert_close(y.float(), x.float().sum(0, keepdim=True), rtol=4e-3, atol=1e-2)
        torch.testing.assert_close(z.float(), x.float().cumsum(0), rtol=4e-3, atol=1e-2)

    @pytest.mark.parametrize("source", [torch.float32, torch.float64, torch.float16, torch.int32])
    def test_casts_round_to_nearest_even(self, kernels, source):
        x = (100 * torch.randn(512)).to(source)
        if source == torch.float32:
            x[:4] = torch.tensor([float("nan"), float("inf"), 1 + 2**-8, 1 + 3 * 2**-8])
        y = torch.empty(512, dtype=torch.bfloat16)
        run(kernels.cast, x, y, N=512)
        assert torch.equal(y.nan_to_num(7), x.bfloat16().nan_to_num(7))

    @pytest.mark.parametrize("target", [torch.float8_e4m3fn, torch.float8_e5m2])
    def test_casts_to_fp8(self, kernels, target):
        x = 50 * torch.randn(512)
        y = torch.empty(512, dtype=target)
        run(kernels.cast, x, y, N=512)
        assert torch.equal(y.float(), x.to(target).float())

    def test_bfloat16_dot(self, kernels):
        a, b = torch.randn(2, 16, 16).bfloat16()
        c = torch.empty(16, 16)
        run(kernels.dot, a, b, c, N=16)
        torch.testing.assert_close(c, a.float() @ b.float())

    def test_bfloat16_constant(self, kernels):
        y = torch.empty(4, dtype=torch.bfloat16)
        run(kernels.bfloat16_constant, y, N=4)
        assert y.tolist() == [0.5] * 4

    def test_maximum_drops_nan_as_a_gpu_does(self, kernels):
        x = torch.tensor([float("nan"), -3.0, 2.0, float("nan")])
        y = torch.empty(4)
        run(kernels.relu, x, y, N=4)
        assert y.tolist() == [0, 0, 2, 0]

    def test_fma_rounds_once(self, kernels):
        x, z, y = torch.full((4,), 1 + 2**-12), torch.full((4,), -1.0), torch.empty(4)
        run(kernels.fma, x, z, y, N=4)  # x * x + z
        assert y.tolist() == [2**-11 + 2**-24] * 4  # twice: 2**-11

    def test_bfloat16_fma_rounds_once(self, kernels):
        x = torch.full((4,), 1 + 2**-4, dtype=torch.bfloat16)
        z, y = torch.full_like(x, -1), torch.empty_like(x)
        run(kernels.fma, x, z, y, N=4)
        assert y.tolist() == [2**-3 + 2**-8] * 4  # twice: 2**-3

    @pytest.mark.parametrize("name", libdevice.FUNCTIONS)
    def test_libdevice_is_rounded_once(self, kernels, name):
        count, points, exact = LIBDEVICE[name]
        points = [points[i % len(points)] for i in range(8)]
        dtype = torch.float64 if name == "isfinited" else torch.float32  # the only one it supports
        columns = [torch.tensor(v, dtype=dtype) for v in zip(*points, strict=True)]
        whole = name in ("llrint", "llround") or name[:2] == "is" or name in ("finitef", "signbit")
        y = torch.empty(len(points), dtype=torch.int64 if whole else torch.float32)
        kernel = kernels.libdevice_one if count == 1 else kernels.libdevice_more
        columns += [columns[-1]] * (4 - count) if count > 1 else []
        constants = {} if count == 1 else {"COUNT": count}
        fn = getattr(kernels.libdevice, name)
        run(kernel, *columns, y, FN=fn, N=len(points), **constants)
        want = [exact(*(float(v) for v in row)) for row in zip(*columns[:count], strict=True)]
        want = torch.tensor(want, dtype=torch.float64).to(y.dtype)
        if whole:
            assert y.tolist() == want.tolist()
        else:
            torch.testing.assert_close(y, want, rtol=1.2e-7, atol=0, equal_nan=True)

    def test_libdevice_by_whatever_name_it_was_imported(self, kernels):
        x = torch.tensor([3.0, -4.0])
        y = torch.empty(2)
        run(kernels.libdevice_of_a_scalar, x, y, N=2)
        want = torch.erf(x * torch.rsqrt((x * x).sum() / 2 + 1e-6)) + x**2
        torch.testing.assert_close(y, want)
        x64, y64 = x.double(), y.double()
        run(kernels.libdevice_one, x64, y64, FN=kernels.libdevice.tanh, N=2)
        assert torch.equal(y64, torch.tanh(x64))

    def test_a_function_that_is_not_known_is_named(self, kernels):
        x, y = torch.ones(2), torch.empty(2)
        with pytest.raises(Exception, match=r"libdevice\.div_rz is not implemented without"):
            run(kernels.libdevice_more, x, x, x, x, y, FN=kernels.libdevice.div_rz, N=2,
                     COUNT=2)  # fmt: skip

    def test_autotune_runs_the_first_config(self, kernels):
        x, y = torch.ones(16), torch.empty(16)
        run(kernels.autotuned, x, y)
        assert (y == 1).all()

    def test_a_launch_prepares_the_language_and_looks_at_dtypes_once(self, kernels):
        x, y = torch.ones(8), torch.empty(8)
        run(kernels.plus_two, x, y, N=8)
        prepared, looked_up = [], []

        def count(frame, event, _):
            if event == "call" and frame.f_code.co_name == "_patch_lang":
                prepared.append(frame.f_locals["fn"])
            elif event == "call" and frame.f_code.co_name == "_get_np_dtype":
                looked_up.append(frame.f_locals["tt_dtype"])

        before = sys.getprofile()
        sys.setprofile(count)
        try:
            run(kernels.plus_two, x, y, N=8)
        finally:
            sys.setprofile(before)
        assert len(prepared) == 1  # the kernel and two calls of a function
        assert all(t.is_ptr() for t in looked_up)  # these have no hash


@no_gpu
class TestAccesses:
    @pytest.mark.parametrize(
        ("kernel", "words"),
        [
            (
                "unmasked_load",
                r"program \(1, 0, 0\) reads x_ptr\[40\], and 23 more, outside of its 40",
            ),
            ("unmasked_store", r"writes y_ptr\[40\], and 23 more"),
            ("unmasked_atomic", r"updates y_ptr\[40\], and 23 more"),
        ],
    )
    def test_an_access_past_the_end_is_an_error_with_its_line(self, kernels, kernel, words):
        x, y = (torch.zeros(100)[:40] for _ in range(2))  # memory follows it
        with pytest.raises(Exception, match=rf"interpreted_kernels\.py:\d+: .*{words}"):
            run(getattr(kernels, kernel), x, y, i32(40), grid=(2, 1, 1), N=32)

    def test_masked_accesses_and_empty_tensors_are_no_error(self, kernels):
        x, y = torch.randn(40), torch.zeros(40)
        run(kernels.masked, x, y, i32(40), grid=(2, 1, 1), N=32)
        assert torch.equal(x, y)
        run(kernels.masked, x[:0], y[:0], i32(0), grid=(1, 1, 1), N=32)

    def test_a_sum_needs_an_atomic(self, kernels):
        from kernelwright.toolchain import interpreter_bounds as bounds

        x, y = torch.ones(40), torch.zeros(1)
        words = "programs 0 and 1 both write an element of y_ptr in no defined order"
        with bounds.recording(), pytest.raises(bounds.ProgramRace, match=words):
            run(kernels.sum_without_an_atomic, x, y, i32(40), grid=(2, 1, 1), N=32)
        y.zero_()
        with bounds.recording():
            run(kernels.sum_by_atomics, x, y, i32(40), grid=(2, 1, 1), N=32)
            run(kernels.sum_without_an_atomic, x, y, i32(40), grid=(1, 1, 1), N=64)
        assert y.item() == 80


@no_gpu
class TestInterpreter:
    def test_scalars_have_the_planned_type(self, kernels):
        out = torch.empty(2)
        run(kernels.scalars, out, f32(0.1), i64(3))
        # 0.1 as float32, and 3 << 40, which does not fit an int32
        assert out.tolist() == [torch.tensor(0.1).item(), float(3 << 40)]

    def test_plan_runs_like_on_a_gpu(self, kernels):
        """Copies, scratch, float arguments read at the call, mutated arguments written back."""
        op = scaling(schema="(Tensor(m!) m, float a) -> (Tensor y)",
                     outputs=lambda m, a: (TensorSpec.contiguous(m.shape, m.dtype),))  # fmt: skip
        kernel = TritonKernel(kernels.scale_and_count, {"N": 8})
        step = Launch(kernel, (1, 1, 1), ("m", "y", "work", f32("a")))
        plan = Plan((step,), {"work": Scratch(TensorSpec.contiguous((1,), torch.int32), zero=True)})
        m = torch.arange(16.0)[::2]
        specs = {"m": TensorSpec.contiguous((8,), torch.float32), "a": 0.0}
        run = toolchain.executor(plan, op, specs, ("m",), CPU)
        for a in (2.0, 3.0):
            m.copy_(torch.arange(8.0))
            assert torch.equal(run(m, a), a * torch.arange(8.0))
            assert torch.equal(m, torch.arange(8.0) + 1)

    def test_cuda_is_emulated_and_reads_floats_at_each_call(self, cuda_source):
        specs = {"x": TensorSpec.contiguous((8,), torch.float32), "a": 0.0}
        run = toolchain.executor(cuda_plan(cuda_source, 8), scaling(), specs, (), CPU)
        for a in (2.0, 3.0):
            assert torch.equal(run(torch.arange(8.0), a), a * torch.arange(8.0))

    def test_compiling_here_says_how(self):
        with pytest.raises(ToolchainError, match="interprets"):
            modes.compile_only()


@no_gpu
def test_repairs_are_made_where_they_are_needed():
    """Without any fix, the tests of what the installed triton does correctly itself pass, and all
    other tests of fixes fail."""
    toolchain.prepare("triton")
    from kernelwright.toolchain import interpreter_repairs as repairs

    of = {
        "maximum": "test_maximum_drops_nan_as_a_gpu_does",
        "fma": "test_fma_rounds_once",
        "bfloat16 constant": "test_bfloat16_constant",
    }
    assert of.keys() == repairs.FIXED.keys()
    right = {of[name] for name, since in repairs.FIXED.items() if since <= repairs.VERSION}
    tests = {name for name in vars(TestRepairs) if name.startswith("test_")}
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST_", "KW_"))}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "support.unrepaired", "-p", "no:cacheprovider",
         "-rA", "--tb=no", f"{__file__}::TestRepairs"],
        env={**env, "PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path])},
        capture_output=True, text=True,
    )  # fmt: skip
    found = re.findall(r"^(PASSED|FAILED|ERROR) \S+::(test_\w+)", done.stdout, re.M)
    assert {name for _, name in found} == tests, done.stdout + done.stderr
    assert {name for outcome, name in found if outcome == "PASSED"} == right


@no_gpu
@pytest.mark.parametrize("language, variable", [("triton", "TRITON_INTERPRET"),
                                                ("numba", "NUMBA_ENABLE_CUDASIM")])  # fmt: skip
def test_a_language_imported_too_early_says_how(language, variable):
    code = (
        f"import {language}, torch; from kernelwright import toolchain;"
        "from kernelwright.toolchain import availability;"
        f"print(availability.missing('{language}', 'cpu'));"
        f"toolchain.prepare('{language}')"
    )
    env = {k: v for k, v in os.environ.items() if k != variable}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert variable in done.stdout and done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert "imported in its compiling mode" in last and f"set {variable}=1" in last


@no_gpu
def test_the_language_is_prepared_once_a_launch():
    import triton.language as tl

    from kernelwright.toolchain.interpreter_repairs import _Language

    prepared, undone = [], []

    def patch(fn):
        prepared.append(fn)
        return SimpleNamespace(restore=lambda: undone.append(fn))

    code = (lambda: None).__code__
    kernel, called = (FunctionType(code, names) for names in ({"tl": tl}, {"core": tl.core}))
    language = _Language(patch)
    for fn in (kernel, called, kernel, called):
        scope = language.prepare(fn)
    assert prepared == [kernel, called] and not undone
    scope.restore()
    assert undone == [called, kernel]
    language.prepare(called)
    assert prepared == [kernel, called, called]


@no_gpu
def test_numba_plan_runs_in_the_simulator():
    toolchain.prepare("numba")
    from support.interpreted_numba import reverse

    step = Launch(NumbaKernel(reverse), (2, 1, 1), ("x", "y", i64(50), f32("a")), (32, 1, 1))
    for dtype in (torch.float32, torch.float16):
        x = torch.randn(50).to(dtype)
        specs = {"x": TensorSpec.of(x), "a": 1.0}
        run = toolchain.executor(Plan((step,)), scaling(), specs, (), CPU)
        assert torch.equal(run(x, 2.0), 2 * x.flip(0))


def test_numba_has_no_bfloat16():
    with pytest.raises(ToolchainError, match=r"numba has no torch\.bfloat16"):
        numba_rt._code(torch.bfloat16)
