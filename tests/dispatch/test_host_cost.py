"""The host cost of a call compared with PyTorch's, by counts; tools/host_cost.py times it."""

import sys

import pytest
import torch

import kernelwright as kw
from kernelwright.dispatch import dynamic_shapes
from kernelwright.toolchain import c_extensions, modes
from support.hosted import CALLS, M, N, both, hosted
from support.publics import randn

pytestmark = pytest.mark.skipif(
    modes.has_gpu() or c_extensions.compiler() is None,
    reason="a stand-in for a GPU, built with a C compiler",
)
#: Number of Python functions that forward and backward may enter in addition to PyTorch's.
MORE = 20


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory):
    with hosted(tmp_path_factory.mktemp("driver")):
        yield


def entered(call):
    """Names of the Python functions that a call enters, in order."""
    found = []

    def note(frame, event, _):
        if event == "call":
            found.append(frame.f_code.co_qualname)

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return found


def entered_again(call):
    """Like `entered`, after a first call has filled the caches."""
    call(), call()
    return entered(call)


@pytest.mark.parametrize("name", CALLS)
def test_forward_and_backward_beside_pytorchs(name, stand_in):
    ours, theirs, *shapes = CALLS[name]
    ours, theirs = (entered_again(both(fn, shapes)) for fn in (ours, theirs))
    assert len(ours) <= len(theirs) + MORE, ours


def test_a_call_that_is_planned_and_bound_is_beyond_that(stand_in):
    x = randn(M, 59, dtype=torch.bfloat16)
    assert len(entered(lambda: kw.softmax(x, -1))) > 10 * MORE


def test_the_stand_in_launches_what_an_h200_would(stand_in):
    """The public function plans and launches GPU rungs, not native."""
    x = randn(M, 61, dtype=torch.bfloat16).requires_grad_()
    with kw.use(softmax="cuda_warp"):  # raises an error without a GPU
        y = kw.softmax(x, -1)
    assert y.shape == x.shape


def test_torch_compile_calls_the_operator_as_cheaply(stand_in):
    """A call in a compiled graph finds its launcher again: it neither plans nor binds again, which
    a CUDA graph would not allow."""
    x, w = randn(M, N, dtype=torch.bfloat16), randn(N, dtype=torch.bfloat16)
    function = entered_again(lambda: kw.rms_norm(x, (N,), w, 1e-6))
    operator = entered_again(lambda: torch.ops.kernelwright.rms_norm(x, w, 1e-6, 0.0))
    assert len(operator) <= len(function) + MORE, operator


@pytest.mark.parametrize("name", ["rms_norm", "scale_unless_one_"])
def test_the_operator_is_bound_once(name, stand_in, monkeypatch):
    x, w, g = randn(M, N), randn(N), torch.tensor(2.0)
    given = {"rms_norm": (x, w, 1e-6, 0.0), "scale_unless_one_": (x, g)}[name]
    operator = getattr(torch.ops.kernelwright, name)
    operator(*given)
    monkeypatch.setattr(dynamic_shapes.OpenCalls, "launcher", None)
    version = x._version
    operator(*given)
    assert x._version == version + (name == "scale_unless_one_")
