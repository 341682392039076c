"""Red zones and poison: what a guard detects, and what it must ignore."""

import pytest
import torch

import kernelwright as kw
from kernelwright import dispatch
from kernelwright.contract import TensorSpec
from kernelwright.contract.layout import REDZONE
from kernelwright.toolchain import modes, redzones, workspace
from support.planning import CPU, no_gpu


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int64, torch.uint8]
)
def test_guard_sees_every_wrong_write(dtype):
    with redzones.guarded() as guard:
        pass
    spec = TensorSpec.contiguous((3, 5), dtype)

    def after(change):
        t = guard.empty("y", spec, CPU)
        if dtype.is_floating_point:
            assert t.isnan().all() and t.data_ptr() % 16 == 0
        change(t)
        return guard.check()

    base = torch.Tensor.untyped_storage
    assert after(lambda t: t.fill_(1)) is None
    assert "never written; the first is element 0" in after(lambda t: None)
    if dtype != torch.uint8:
        assert "1 of 15 elements never written; the first is element 14" in after(lambda t: t[:, :4].fill_(1) + t[:2, 4].fill_(1).sum())  # fmt: skip  # noqa: E501

    def beyond(t):
        t.fill_(1)
        base(t)[REDZONE + 15 * dtype.itemsize + 2] = 1

    def ahead(t):
        t.fill_(1)
        base(t)[REDZONE - 1] = 1

    assert "y: " in after(beyond) and "written after its end" in after(beyond)
    assert "written before its start" in after(ahead)
    assert guard.check() is None  # each allocation is checked once


def test_guard_reports_scratch_that_is_not_zero_again():
    with redzones.guarded() as guard:
        work = guard.empty("w", TensorSpec.contiguous((4,), torch.int32), CPU, result=False,
                           zero=True)  # fmt: skip
    assert not work.any() and guard.check() is None
    work = guard.empty("w", TensorSpec.contiguous((4,), torch.int32), CPU, result=False, zero=True)
    work[2] = 1
    assert guard.check() == "w: workspace that must be left zero is not zero"


@no_gpu
def test_guard_finds_a_rungs_wrong_write(monkeypatch):
    ladder, x = dispatch.ladder("softmax"), torch.randn(4, 30)
    with redzones.guarded() as guard:
        run = dispatch.launcher(ladder, {"x": x, "dim": -1}, "triton_row")
    run(x, -1)
    assert guard._given and guard.check() is None and redzones.active is None
    with redzones.guarded() as second:
        run(x, -1)
    assert second._given and not guard._given


def test_what_a_public_function_keeps_is_not_guarded():
    """A guarded rung that calls it may be the first call with a shape."""
    x = torch.randn(3, 37, device="cuda" if modes.has_gpu() else "cpu")
    with kw.use(softmax="triton_row"), redzones.guarded() as guard:
        kw.softmax(x, -1)
    with kw.use(softmax="triton_row"):
        kw.softmax(x, -1)
    assert not guard._given


@pytest.mark.parametrize(
    ("plan", "ready"),
    [(100, 1 << 20), (256 << 10, 4 << 20), (4 << 20, 16 << 20), (1 << 26, 1 << 26)],
)
def test_zeroed_memory_for_captures_is_bounded(plan, ready):
    assert workspace.kept_ready(plan) == ready
