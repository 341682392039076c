"""Plans on CPU tensors, and what triton's interpreter gets wrong without the repairs."""

import os
import subprocess
import sys

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
    i64,
)
from kernelwright.toolchain import interpreter, numba_rt
from planning import CPU, cuda_plan, no_gpu, scale_cu, scaling  # noqa: F401


@no_gpu
class TestInterpreter:
    """Each of these is wrong in triton 3.6 without the repairs."""

    @pytest.fixture
    def kernels(self):
        toolchain.prepare("triton")
        import interpreted_kernels

        return interpreted_kernels

    @staticmethod
    def run(fn, *values, grid=(1, 1, 1), **constexprs):
        kernel = TritonKernel(fn, constexprs)
        interpreter.launch(kernel, Launch(kernel, grid, ()), list(values))

    def test_bfloat16_arithmetic(self, kernels):
        x = torch.randn(64).bfloat16()
        y = torch.empty_like(x)
        self.run(kernels.bfloat16_arithmetic, x, y, N=64)
        square = (x * x).float()  # each step rounds, as on a GPU
        assert torch.equal(y, (torch.where(x > 0.5, square, -x.float()).bfloat16() + 1))

    @pytest.mark.parametrize("source", [torch.float32, torch.float64, torch.float16, torch.int32])
    def test_casts_round_to_nearest_even(self, kernels, source):
        x = (100 * torch.randn(512)).to(source)
        if source == torch.float32:
            x[:4] = torch.tensor([float("nan"), float("inf"), 1 + 2**-8, 1 + 3 * 2**-8])
        y = torch.empty(512, dtype=torch.bfloat16)
        self.run(kernels.cast, x, y, N=512)
        assert torch.equal(y.nan_to_num(7), x.bfloat16().nan_to_num(7))

    @pytest.mark.parametrize("target", [torch.float8_e4m3fn, torch.float8_e5m2])
    def test_casts_to_fp8(self, kernels, target):
        x = 50 * torch.randn(512)
        y = torch.empty(512, dtype=target)
        self.run(kernels.cast, x, y, N=512)
        assert torch.equal(y.float(), x.to(target).float())

    def test_bfloat16_dot(self, kernels):
        a, b = torch.randn(2, 16, 16).bfloat16()
        c = torch.empty(16, 16)
        self.run(kernels.dot, a, b, c, N=16)
        torch.testing.assert_close(c, a.float() @ b.float())

    def test_maximum_drops_nan_as_a_gpu_does(self, kernels):
        x = torch.tensor([float("nan"), -3.0, 2.0, float("nan")])
        y = torch.empty(4)
        self.run(kernels.relu, x, y, N=4)
        assert y.tolist() == [0, 0, 2, 0]

    def test_fma_rounds_once(self, kernels):
        x = torch.full((4,), 1 + 2**-23)
        y = torch.empty(4)
        self.run(kernels.fma, x, y, N=4)  # x * x - 1
        assert torch.equal(y.double(), (x.double() ** 2 - 1).float().double())

    def test_autotune_runs_the_first_config(self, kernels):
        x, y = torch.ones(16), torch.empty(16)
        self.run(kernels.autotuned, x, y)
        assert (y == 1).all()

    def test_scalars_have_the_planned_type(self, kernels):
        out = torch.empty(2)
        self.run(kernels.scalars, out, f32(0.1), i64(3))
        # 0.1 as float32, and 3 << 40, which an int32 has no room for
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
        run = toolchain.bind(plan, op, specs, ("m",), CPU)
        for a in (2.0, 3.0):
            m.copy_(torch.arange(8.0))
            assert torch.equal(run(m, a), a * torch.arange(8.0))
            assert torch.equal(m, torch.arange(8.0) + 1)

    def test_cuda_is_emulated_and_reads_floats_at_each_call(self, cuda_source):
        specs = {"x": TensorSpec.contiguous((8,), torch.float32), "a": 0.0}
        run = toolchain.bind(cuda_plan(cuda_source, 8), scaling(), specs, (), CPU)
        for a in (2.0, 3.0):
            assert torch.equal(run(torch.arange(8.0), a), a * torch.arange(8.0))

    def test_compiling_here_says_how(self):
        with pytest.raises(toolchain.ToolchainError, match="interprets"):
            toolchain.compile_only()


@no_gpu
@pytest.mark.parametrize("language, variable", [("triton", "TRITON_INTERPRET"),
                                                ("numba", "NUMBA_ENABLE_CUDASIM")])  # fmt: skip
def test_a_language_imported_too_early_says_how(language, variable):
    code = (
        f"import {language}, torch; from kernelwright import toolchain;"
        f"print(toolchain.missing('{language}', torch.device('cpu')));"
        f"toolchain.prepare('{language}')"
    )
    env = {k: v for k, v in os.environ.items() if k != variable}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert variable in done.stdout and done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert "imported in its compiling mode" in last and f"set {variable}=1" in last


@no_gpu
def test_numba_plan_runs_in_the_simulator():
    toolchain.prepare("numba")
    from interpreted_numba import reverse

    step = Launch(NumbaKernel(reverse), (2, 1, 1), ("x", "y", i64(50), f32("a")), (32, 1, 1))
    for dtype in (torch.float32, torch.float16):
        x = torch.randn(50).to(dtype)
        specs = {"x": TensorSpec.of(x), "a": 1.0}
        run = toolchain.bind(Plan((step,)), scaling(), specs, (), CPU)
        assert torch.equal(run(x, 2.0), 2 * x.flip(0))


def test_numba_has_no_bfloat16():
    with pytest.raises(toolchain.ToolchainError, match=r"numba has no torch\.bfloat16"):
        numba_rt._code(torch.bfloat16)
