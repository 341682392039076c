"""Plans for the tests of the toolchain: y = a x, in CUDA C++."""

import pytest
import torch

from kernelwright.contract import CudaKernel, Launch, Operator, Plan, TensorSpec, f32, i64
from kernelwright.support import settings
from kernelwright.toolchain import modes

no_gpu = pytest.mark.skipif(modes.has_gpu(), reason="a GPU is here: nothing is interpreted")
CPU = torch.device("cpu")


@pytest.fixture(name="cached")
def own_cache(tmp_path, monkeypatch):
    """A separate cache for the test."""
    monkeypatch.setenv("KW_CACHE", str(tmp_path / "cache"))
    settings.settings.cache_clear()
    yield tmp_path / "cache"
    settings.settings.cache_clear()


def scaling(name="scale", outputs=None, schema="(Tensor x, float a) -> (Tensor y)"):
    """An operator for plans: y = a x."""
    return Operator(
        name=name,
        schema=schema,
        reference=lambda x, a: a * x,
        inputs=lambda c, device: {},
        cases=(),
        cost=lambda **k: None,
        outputs=outputs or (lambda x, a: (TensorSpec.contiguous(x.shape, x.dtype),)),
    )


CUDA_SOURCE = """
template <typename T>
__global__ void scale(const T *x, T *y, long long n, float a) {
  long long i = blockIdx.x * 256LL + threadIdx.x;
  if (i < n) y[i] = x[i] * T(a);
}
"""


@pytest.fixture(name="cuda_source")
def scale_cu(tmp_path):
    path = tmp_path / "scale.cu"
    path.write_text(CUDA_SOURCE)
    return path


def cuda_plan(path, n, cluster=1, shared=0, grid=4):
    return Plan((
        Launch(
            CudaKernel(path, "scale<float>", cluster),
            grid=(grid, 1, 1),
            block=(256, 1, 1),
            args=("x", "y", i64(n), f32("a")),
            shared=shared,
        ),
    ))  # fmt: skip
