"""Arguments that PyTorch's functions have besides tensors: aliases, out=, inplace=, legacy order,
integers, class probabilities."""

import pytest
import torch
import torch.nn.functional as F

import kernelwright as kw
from support.publics import DEVICE, agree, randn, strict, with_gradients


def test_sum_takes_numpys_names():
    x = randn(3, 4, 5)
    assert torch.equal(kw.sum(x, axis=1), kw.sum(x, 1))
    assert torch.equal(kw.sum(x, axis=(0, 2), keepdims=True), kw.sum(x, (0, 2), True))
    with pytest.raises(TypeError, match="axis: is another name of dim"):
        kw.sum(x, 1, axis=1)
    with pytest.raises(TypeError, match="keepdims: is another name of keepdim"):
        kw.sum(x, 1, True, keepdims=True)


OUT = {
    "sum": (lambda x, **o: kw.sum(x, 1, **o), lambda x: x.sum(1)),
    "add": (lambda x, **o: kw.add(x, x, **o), lambda x: x + x),
    "add alpha": (lambda x, **o: kw.add(x, 2, alpha=3, **o), lambda x: x + 6),
    "mul": (lambda x, **o: kw.mul(x, x, **o), lambda x: x * x),
    "sigmoid": (kw.sigmoid, torch.sigmoid),
    "tanh": (kw.tanh, torch.tanh),
}


@pytest.mark.parametrize("name", OUT)
def test_out_gets_the_result(name):
    ours, theirs = OUT[name]
    x = randn(3, 4)
    right = theirs(x)
    for out in (torch.empty(0, device=DEVICE), torch.empty_like(right), right.double()[..., None]):
        out = out[..., 0] if out.ndim > right.ndim else out
        assert ours(x, out=out) is out
        agree(out, right.to(out.dtype), x.dtype)


@pytest.mark.parametrize(
    ("out", "error", "words"),
    [
        (torch.empty(3, device=DEVICE), ValueError, r"out: has shape \(3,\), should be \(4,\)"),
        (torch.empty(4, device=DEVICE, dtype=torch.int32), TypeError, "out: is torch.int32"),
        (torch.empty(4, device="meta"), ValueError, "out: is on meta, the result on"),
        ([], TypeError, "out: must be a tensor, is a list"),
    ],
)
def test_an_out_that_does_not_fit_is_named(out, error, words):
    with pytest.raises(error, match=words):
        kw.tanh(randn(4), out=out)


def test_out_is_not_differentiable():
    x = randn(4).requires_grad_()
    with pytest.raises(RuntimeError, match="out: is not differentiable"):
        kw.tanh(x, out=torch.empty(4, device=DEVICE))
    with torch.no_grad():
        kw.tanh(x, out=torch.empty(4, device=DEVICE))


@pytest.mark.parametrize(("ours", "theirs"), [(kw.relu, F.relu), (kw.silu, F.silu)])
def test_in_place_with_its_gradient(ours, theirs):
    x = randn(3, 4)
    y = ours(x, inplace=True)
    assert y is x
    agree(y, theirs(randn(3, 4)), x.dtype)
    mine, right = (
        with_gradients(lambda t, f=f: f(t * 2, inplace=True), [randn(3, 4)]) for f in (ours, theirs)
    )
    agree(mine, right, x.dtype)
    with pytest.raises(RuntimeError, match="leaf"):
        ours(randn(3).requires_grad_(), True)


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.bool], ids=str)
def test_integers_promote_as_in_pytorch(dtype):
    x = torch.tensor([0, 1, 1], device=DEVICE, dtype=dtype)
    for name in ("tanh", "sigmoid"):
        torch.testing.assert_close(getattr(kw, name)(x), getattr(torch, name)(x))
    if dtype != torch.bool:
        assert torch.equal(kw.relu(x - 1), torch.relu(x - 1))


@pytest.mark.parametrize("dtype", [torch.bool, torch.complex64], ids=str)
def test_relu_is_of_real_numbers(dtype):
    with pytest.raises(TypeError, match=f"input: must be real numbers, is {dtype}"):
        kw.relu(torch.ones(3, device=DEVICE).to(dtype))


def test_one_normalized_dimension_is_a_number():
    x, w, b = randn(3, 16), randn(16), randn(16, seed=1)
    assert torch.equal(kw.layer_norm(x, 16, w, b), kw.layer_norm(x, (16,), w, b))
    assert torch.equal(kw.rms_norm(x, 16, w), kw.rms_norm(x, (16,), w))
    assert torch.equal(kw.add_rms_norm(x, x, 16, w)[0], kw.add_rms_norm(x, x, (16,), w)[0])
    with pytest.raises(ValueError, match=r"normalized_shape: \(4,\)"):
        kw.layer_norm(x, 4)


def legacy(loss, x, target, *more):
    with pytest.warns(UserWarning, match="size_average"):
        return loss(x, target, *more)


def test_cross_entropy_takes_the_order_of_pytorch():
    x, weight = randn(5, 7), torch.arange(1.0, 8, device=DEVICE)
    target = torch.tensor([0, 1, 2, 1, 6], device=DEVICE)
    for more in ((weight, None, 2, None, "sum", 0.1), (None, None, 0)):
        agree(kw.cross_entropy(x, target, *more), F.cross_entropy(x, target, *more), x.dtype)
    for average in (True, False, None):
        for reduce in (True, False):
            ours, theirs = (
                legacy(f, x, target, weight, average, 1, reduce)
                for f in (kw.cross_entropy, F.cross_entropy)
            )
            agree(ours, theirs, x.dtype)


@pytest.mark.parametrize("shape", [(7,), (5, 7), (2, 7, 3)], ids=str)
@pytest.mark.parametrize("options", [{}, {"reduction": "none"}, {"label_smoothing": 0.1}], ids=str)
@pytest.mark.parametrize("weight", [None, torch.arange(1.0, 8)], ids=["plain", "weight"])
def test_cross_entropy_of_class_probabilities(shape, options, weight):
    classes = min(1, len(shape) - 1)
    weight = weight if weight is None else weight.to(DEVICE)

    def loss(fn, scale=1.0):
        return lambda x, t: scale * fn(x, t.softmax(classes), weight, **options)

    tensors = [randn(*shape), randn(*shape, seed=1)]
    agree(*(with_gradients(loss(f), tensors) for f in (kw.cross_entropy, F.cross_entropy)),
          torch.float32)  # fmt: skip


X, INDEX = randn(4, 5), torch.tensor([0, 9], device=DEVICE)
REFUSED = {
    "a class ignored among probabilities": (
        lambda: kw.cross_entropy(X, X.softmax(1), ignore_index=2), ValueError, "ignore_index"),
    "the same of hidden states": (
        lambda: kw.linear_cross_entropy(X, randn(5, 5), X.softmax(1), ignore_index=0),
        ValueError, "ignore_index"),
    "a complex factor of real numbers": (lambda: kw.add(X, X, alpha=1 + 0j), TypeError, "alpha"),
    "a bool as a factor": (lambda: kw.add(X, X, alpha=True), TypeError, "alpha"),
    "a fraction of integers": (lambda: kw.add(INDEX, INDEX, alpha=0.5), TypeError, "alpha"),
    "text added": (lambda: kw.add(X, "1"), TypeError, "other"),
    "a list multiplied": (lambda: kw.mul(X, [1]), TypeError, "other"),
    "a complex factor of rows": (
        lambda: kw.index_add(X, 0, INDEX, X[:2], alpha=1j), TypeError, "alpha"),
    "a complex eps": (lambda: kw.layer_norm(X, 5, eps=1j), TypeError, "eps"),
    "eps as text": (lambda: kw.rms_norm(X, 5, eps="a"), TypeError, "eps"),
    "a complex probability": (lambda: kw.dropout(X, 0.5j), TypeError, "p"),
    "a complex padding": (lambda: kw.pad(X, (1, 1), value=1j), TypeError, "value"),
    "a complex cap": (
        lambda: kw.cross_entropy(X, INDEX.new_zeros(4), softcap=1j), TypeError, "softcap"),
    **{f"{name} along a fraction": (lambda f=f: f(X, 1.5), TypeError, "dim")
       for name, f in {"softmax": kw.softmax, "log_softmax": kw.log_softmax, "sum": kw.sum,
                       "cumsum": kw.cumsum}.items()},
    "softmax along a text": (lambda: kw.softmax(X, "a"), TypeError, "dim"),
    "a fraction of elements": (lambda: kw.topk(X, 2.0), TypeError, "k"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_pytorch_refuses_is_refused_by_name(name):
    call, error, argument = REFUSED[name]
    with pytest.raises(error, match=f"^{argument}: "):
        call()


OUT_OF_RANGE = {
    "index_add": lambda i: kw.index_add(X, 0, i, X[:2]),
    "gather": lambda i: kw.gather(X, 1, i[None]),
    "gather rows": lambda i: kw.gather(X, 0, i[:, None].expand(2, 5)),
    "scatter_add": lambda i: kw.scatter_add(X, 1, i[None], X),
    "scatter_add rows": lambda i: kw.scatter_add(X, 0, i[:, None].expand(2, 5), X),
    "index_select": lambda i: kw.index_select(X, 1, i),
    "embedding": lambda i: kw.embedding(i, X),
}


@strict
@pytest.mark.parametrize("name", OUT_OF_RANGE)
@pytest.mark.parametrize("sign", [1, -1])
def test_an_index_out_of_range_is_an_index_error(name, sign):
    argument = "input" if name == "embedding" else "index"
    with pytest.raises(IndexError, match=f"^{argument}: {sign * 9} is out of range"):
        OUT_OF_RANGE[name](sign * INDEX)


def test_z_loss_and_softcap_of_class_probabilities():
    """One class with probability 1 is its index."""
    x, weight = randn(5, 7), torch.arange(1.0, 8, device=DEVICE)
    target = torch.tensor([0, 1, 2, 1, 6], device=DEVICE)
    for reduction in ("none", "sum"):
        more = {"reduction": reduction, "z_loss": 0.1, "softcap": 2.0}
        ours = kw.cross_entropy(x, F.one_hot(target, 7).float(), weight, **more)
        agree(ours, kw.cross_entropy(x, target, weight, **more), x.dtype)
    more = {"z_loss": 0.1}
    ours = kw.cross_entropy(x, F.one_hot(target, 7).float(), **more)
    agree(ours, kw.cross_entropy(x, target, **more), x.dtype)


def test_probabilities_of_another_shape_are_named():
    with pytest.raises(ValueError, match=r"target: probabilities have shape \(5,\)"):
        kw.cross_entropy(randn(5, 7), randn(5))


@pytest.mark.parametrize("further", [(), (2,), (2, 3)], ids=str)
@pytest.mark.parametrize("kind", ["indices", "probabilities"])
def test_linear_cross_entropy_of_further_dimensions(further, kind):
    rows = (7, *further)
    if kind == "indices":
        target = torch.arange(5 * torch.Size(further).numel(), device=DEVICE).remainder(7)
        target = target.view(5, *further)
    else:
        target = randn(5, *rows, seed=3).softmax(1)

    def reference(x, w, b):
        logits = F.linear(x, w.flatten(0, -2), b.flatten()).view(5, *rows)
        return F.cross_entropy(logits, target, label_smoothing=0.1)

    def ours(x, w, b):
        return kw.linear_cross_entropy(x, w, target, linear_bias=b, label_smoothing=0.1)

    tensors = [randn(5, 6), randn(*rows, 6, seed=1), randn(*rows, seed=2)]
    agree(*(with_gradients(f, tensors) for f in (ours, reference)), torch.float32)


def test_log_softmax():
    x = randn(3, 4)
    agree(*(with_gradients(lambda t, f=f: f(t, 1), [x]) for f in (kw.log_softmax, F.log_softmax)),
          x.dtype)  # fmt: skip
    assert kw.log_softmax(torch.arange(3), 0, dtype=torch.float32).dtype == torch.float32
    with pytest.raises(IndexError, match="dim: 2 is out of range"):
        kw.log_softmax(x, 2)
    with pytest.raises(TypeError, match=r"input: .*int64"):
        kw.log_softmax(torch.arange(3), 0)


@pytest.mark.parametrize("reduction", ["none", "batchmean", "sum", "mean"])
@pytest.mark.parametrize("log_target", [False, True])
def test_kl_div(reduction, log_target):
    def loss(fn):
        def of(x, t):
            target = t.log_softmax(-1) if log_target else t.softmax(-1)
            return fn(x.log_softmax(-1), target, reduction=reduction, log_target=log_target)

        return of

    tensors = [randn(3, 4), randn(3, 4, seed=1)]
    agree(*(with_gradients(loss(f), tensors) for f in (kw.kl_div, F.kl_div)), torch.float32)


def test_kl_div_names_what_is_wrong():
    x = randn(3, 4)
    with pytest.raises(ValueError, match="reduction: must be one of"):
        kw.kl_div(x, x, reduction="average")
    with pytest.raises(ValueError, match=r"target: shape \(3, 5\) does not broadcast"):
        kw.kl_div(x, randn(3, 5))
    agree(*(legacy(f, x, x.exp(), False) for f in (kw.kl_div, F.kl_div)), x.dtype)
