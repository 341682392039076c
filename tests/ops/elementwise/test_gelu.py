"""gelu at every value: all of float16 and bfloat16, and float32 where its formulas lose digits.

The device header is compiled by the C++ compiler, so that its arithmetic is judged on machines
without a GPU; the exponential is then exact, whereas a GPU's has an error of up to 2 ulp.
"""

import ctypes
import math
import re
import shutil
import subprocess

import numpy as np
import pytest
import torch

import kernelwright as kw
from kernelwright.contract.compare import ulp
from kernelwright.dispatch import launcher, specs_of, unsupported
from kernelwright.ops._triton import math as triton_math
from kernelwright.ops.elementwise.gelu import LADDER, LADDER_BACKWARD, fit, spec
from kernelwright.support.includes import INCLUDE
from kernelwright.toolchain import nvrtc
from support.publics import DEVICE

HALVES = (torch.float16, torch.bfloat16)
HEADER = INCLUDE / "kw" / "gelu.cuh"
HOST = """
#include <cmath>
#include <cstring>
#include "kw/gelu.cuh"
template <typename T> void all(const float *x, float *y, long n) {
  for (long i = 0; i < n; ++i) {
    y[i] = kw::gelu<T, false>(x[i]), y[n + i] = kw::gelu_slope<T, false>(x[i]);
    y[2 * n + i] = kw::gelu<T, true>(x[i]), y[3 * n + i] = kw::gelu_slope<T, true>(x[i]);
  }
}
extern "C" void float32(const float *x, float *y, long n) { all<float>(x, y, n); }
extern "C" void float16(const float *x, float *y, long n) { all<__half>(x, y, n); }
extern "C" void bfloat16(const float *x, float *y, long n) { all<__nv_bfloat16>(x, y, n); }
"""


def every_value(dtype):
    """All 65,536 values of a 16-bit type, on the CPU."""
    return torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(dtype)


def singles():
    """float32 over the relevant range, dense around the slopes' zeros, and special values."""
    special = [math.inf, -math.inf, math.nan, 0.0, -0.0, 1e-45, -1e-40, 3e38, -3e38, 1e13, -1e13]
    near = torch.cat([-0.7517915 + torch.linspace(-1, 1, 20001) * s for s in (1e-5, 1e-2)])
    return torch.cat([torch.linspace(-14.5, 14.5, 200_001), near, torch.tensor(special)])


def reference(x, approximate, backward):
    if backward:
        return spec.backward_reference(torch.ones_like(x).double(), x.double(), approximate)
    return spec.reference(x.double(), approximate)


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    """The header's four functions by (dtype, x): gelu and slope by erf, then by tanh."""
    if not shutil.which("g++"):
        pytest.skip("no C++ compiler")
    folder = tmp_path_factory.mktemp("host")
    (folder / "gelu.cpp").write_text(HOST)
    includes = [f"-I{p}" for p in (INCLUDE, *nvrtc.include_folders())]
    made = folder / "gelu.so"
    command = ["g++", "-std=c++17", "-O1", "-shared", "-fPIC", *includes, "-o", str(made)]
    subprocess.run([*command, str(folder / "gelu.cpp")], check=True)
    library = ctypes.CDLL(str(made))

    def run(dtype, x):
        x, y = x.float().contiguous(), torch.empty(4, x.numel())
        function = getattr(library, str(dtype).removeprefix("torch."))
        function(ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr()), x.numel())
        return y.to(dtype)

    return run


FORMS = [(a, b) for a in ("none", "tanh") for b in (False, True)]


def judge(out, x, approximate, backward, allowed):
    """NaN and infinities must be where float64 has them; elsewhere `allowed` ulp, one number or one
    for each element. A value under 2^-115 may be zero: its exponential is flushed."""
    want = reference(x, approximate, backward)
    assert torch.equal(out.isnan(), want.isnan())
    assert torch.equal(out.isinf(), want.to(out.dtype).isinf())
    off = (out.double() - want).abs()
    share = off / ulp(want, out.dtype) / allowed
    share[~(off > 2.0**-115)] = 0.0
    worst = share.argmax()
    assert share[worst] <= 1, f"{out[worst]} for {x[worst]}, float64 says {want[worst]}"


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize(("approximate", "backward"), FORMS)
def test_header_at_every_value_of_a_16_bit_type(host, dtype, approximate, backward):
    x = every_value(dtype)
    out = host(dtype, x)[FORMS.index((approximate, backward))]
    judge(out, x, approximate, backward, 0.75)


def test_header_slope_in_float32_keeps_its_digits_at_its_zero_and_in_the_tail(host):
    x = singles()
    out = host(torch.float32, x)[FORMS.index(("none", True))]
    judge(out, x, "none", True, tail_ulps(x))


def tail_ulps(x):
    """12 ulp; where the slope is under 1e-3, plus an absolute 1e-8, at most a hundredth of it."""
    small = reference(x, "none", True).abs().clamp_min(1e-300)
    return 12 + 2.0**23 * torch.minimum(1e-8 / small, torch.tensor(0.01)).double()


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize(("approximate", "backward"), FORMS)
@pytest.mark.parametrize("rung", ["triton_block", "cuda_vec16"])
def test_rung_at_every_value_of_a_16_bit_type(rung, dtype, approximate, backward):
    x = every_value(dtype).to(DEVICE)
    judge(run(rung, x, approximate, backward).cpu(), x.cpu(), approximate, backward, 0.75)


@pytest.mark.parametrize("rung", ["triton_block", "cuda_vec16"])
def test_rung_slope_in_float32_keeps_its_digits_at_its_zero_and_in_the_tail(rung):
    x = singles().to(DEVICE)
    judge(run(rung, x, "none", True).cpu(), x.cpu(), "none", True, tail_ulps(x.cpu()))


def test_triton_tanh_slope_in_float32_keeps_its_digits_at_its_zero():
    x = (fit_root("TANH_ROOT") + torch.linspace(-1e-3, 1e-3, 20001)).to(DEVICE)
    judge(run("triton_block", x, "tanh", True).cpu(), x.cpu(), "tanh", True, 8.0)


def run(rung, x, approximate, backward):
    chosen = LADDER_BACKWARD if backward else LADDER
    args = {"x": x, "approximate": approximate}
    if backward:
        args = {"gy": torch.ones_like(x), **args}
    reason = unsupported(chosen.rung(rung), specs_of(args), x.device)
    if reason:
        pytest.skip(reason)
    return launcher(chosen, args, rung)(*args.values())


def fit_root(name):
    return -float(getattr(fit, name))


TABLES = {
    "log2_tail, float16": ("__half", "log2_tail", "LOG2_TAIL_F16"),
    "log2_tail, bfloat16": ("__nv_bfloat16", "log2_tail", "LOG2_TAIL_BF16"),
    "log2_slope, float16": ("__half", "log2_slope", "LOG2_SLOPE_F16"),
    "log2_slope, bfloat16": ("__nv_bfloat16", "log2_slope", "LOG2_SLOPE_BF16"),
    "log2_slope, float32": ("float", "log2_slope", "LOG2_SLOPE_F32"),
    "tanh_bracket, float32": (None, None, "TANH_BRACKET_F32"),
}


@pytest.mark.parametrize("name", fit.FITS)
def test_header_and_triton_hold_the_fitted_tables(name):
    ctype, function, constant = TABLES[name]
    coefficients, error = fit.FITS[name].solve()
    if "32" in name:
        assert error < 1
    triton = getattr(triton_math, constant)
    triton = np.array(getattr(triton, "value", triton), dtype=np.float32)[::-1]
    # another machine's linear algebra may round the last digits differently
    np.testing.assert_allclose(triton, coefficients, rtol=1e-3)
    if ctype:
        text = HEADER.read_text().split(f"GeluTables<{ctype}>")[1].split(function)[1]
        listed = re.search(r"c\[\] = \{(.*?)\}", text, re.S)[1]
        header = [float(v.strip().rstrip("f")) for v in listed.split(",")]
        np.testing.assert_array_equal(np.array(header, dtype=np.float32), triton)


def test_public_function_keeps_torchs_signature_and_names_what_is_wrong():
    x = torch.randn(3, 4)
    assert torch.equal(kw.gelu(x), torch.nn.functional.gelu(x))
    assert torch.equal(
        kw.gelu(x, approximate="tanh"), torch.nn.functional.gelu(x, approximate="tanh")
    )
    with pytest.raises(ValueError, match='approximate: must be "none" or "tanh", is \'fast\''):
        kw.gelu(x, "fast")
    with pytest.raises(TypeError, match=r"input: must be floating point, is torch\.int64"):
        kw.gelu(torch.arange(3))


def test_result_has_the_strides_of_a_dense_input():
    x = torch.randn(4, 5).t()
    assert kw.gelu(x).stride() == x.stride()
