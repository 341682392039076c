"""The lookup of bound functions: in C and in Python, the same calls share a function."""

import gc
import sys

import pytest
import torch

from kernelwright.dispatch import binding, dynamic_shapes, ladder
from kernelwright.dispatch.generated import compiled
from kernelwright.toolchain import modes, tensors

X = torch.randn(4, 8)


def finder(kinds):
    """A finder, and the calls for which `bound` was called."""
    asked = []

    def bound(*args):
        asked.append(args)
        return lambda *given: (len(asked), given)

    return tensors.module().Finder(kinds, bound, lambda *args: "in Python"), asked


def test_calls_that_a_plan_must_tell_apart():
    found, asked = finder("t?v-")
    calls = [
        (X, None, 1, 0.5, None),
        (X.to(torch.bfloat16), None, 1, 0.5, None),
        (X.to(torch.int32), None, 1, 0.5, None),
        (X[:2], None, 1, 0.5, None),
        (X.mT, None, 1, 0.5, None),
        (X.view(32), None, 1, 0.5, None),
        (torch.empty(33)[1:].view(4, 8), None, 1, 0.5, None),  # another alignment
        (X, X, 1, 0.5, None),
        (X, X[:0], 1, 0.5, None),
        (X, None, 2, 0.5, None),
        (X, None, "1", 0.5, None),
        (X, None, (1, 2), 0.5, None),
        (X, None, 1, 0.5, "cuda_warp"),
        (torch.tensor(1.0), None, 1, 0.5, None),
    ]
    for place, call in enumerate(calls, 1):
        assert found(*call) == (place, call[:-1])
    for call in calls:
        found(*call)
    assert asked == calls


def test_calls_that_are_alike():
    found, asked = finder("t?v-")
    for x, floating in ((X, 0.5), (X.clone(), 0.25), (torch.nn.Parameter(X), 2.0)):
        assert found(x, None, [1, 2], floating, None)[1] == (x, None, [1, 2], floating)
    found(X, None, (1, 2), 1.0, None)
    assert len(asked) == 1


def test_a_tensor_without_data_is_run_in_python():
    found, asked = finder("t")
    assert found(X.to("meta"), None) == "in Python" and not asked


def test_errors_come_through_and_nothing_is_kept_of_them():
    def bound(*args):
        raise ValueError("x: no rung")

    found = tensors.module().Finder("t", bound, None)
    for _ in range(2):
        with pytest.raises(ValueError, match="x: no rung"):
            found(X, None)
    with pytest.raises(TypeError, match="1 arguments and a rung are needed, 1 given"):
        found(X)
    with pytest.raises(TypeError, match="unhashable"):
        tensors.module().Finder("v", bound, None)({}, None)
    with pytest.raises(ValueError, match="kinds"):
        tensors.module().Finder("tx", bound, None)


def test_shapes_that_never_repeat_are_not_kept():
    found, asked = finder("v")
    for i in range(2 * 4096 + 10):
        found(i, None)
    assert found(2 * 4096 + 9, None)[0] == len(asked) == 2 * 4096 + 10
    found(0, None)
    assert len(asked) == 2 * 4096 + 11


def test_nothing_leaks():
    class Bound:
        def __call__(self, *args):
            return self

    bound, rung = Bound(), "a rung"
    found = tensors.module().Finder("t?v", bound, None)
    before = sys.getrefcount(X), sys.getrefcount(rung)
    for _ in range(1000):
        found(X, None, [1], rung)
    assert sys.getrefcount(X) == before[0] and sys.getrefcount(rung) <= before[1] + 1
    assert sys.getrefcount(bound) < 10
    del found
    gc.collect()
    assert sys.getrefcount(bound) == 2


def test_an_operator_is_found_in_c_after_its_first_call(monkeypatch):
    """Calls that Python had bound are not bound again."""
    monkeypatch.setattr(tensors, "in_c", lambda: True)
    bound, launcher = [], dynamic_shapes.launcher
    monkeypatch.setattr(dynamic_shapes, "launcher", lambda *a: bound.append(a) or launcher(*a))
    run = binding.LaunchCache(ladder("softmax"))
    user = run.used_by(compiled("def user(*args): return run(*args)", "user"))
    first = user(X, -1, None)
    assert isinstance(run.now, tensors.module().Finder) and user.__globals__["run"] is run.now
    for x in (X, X.clone()):
        torch.testing.assert_close(user(x, -1, None), first)
    assert len(bound) == 1
    user(X, -2, None)
    assert len(bound) == 2


@pytest.mark.skipif(modes.has_gpu(), reason="a GPU is here")
def test_without_a_gpu_nothing_is_compiled_for_it():
    assert tensors.finder("t", None, None) is None
