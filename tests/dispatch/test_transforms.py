"""Every public function under every transform of PyTorch, with operands of every kind: right, or
refused by a clear error that docs/pytorch.md lists."""

import pytest
import torch
from torch.utils import _pytree as pytree

from support.transforms import (
    COMPILED,
    DOCS,
    EAGER,
    FUNCTIONS,
    OPERANDS,
    named,
    ours,
    pytorchs,
    refusal,
    written,
)


def samples(name):
    return OPERANDS["sample"](FUNCTIONS[name])


def check(name, transform, operand, compiled):
    try:
        tensors = OPERANDS[operand](FUNCTIONS[name])
    except IndexError:  # a shape without the dimensions of its function
        pytest.skip("PyTorch does not support it either")
    check_tensors(name, transform, operand, tensors, compiled)


def check_tensors(name, transform, operand, tensors, compiled=False):
    public = FUNCTIONS[name]
    try:
        public.pytorch(*tensors)
        want = pytorchs(public, transform, tensors)
    except Exception:  # noqa: BLE001
        pytest.skip("PyTorch does not support it either")
    refused = refusal(name, named(transform, compiled))
    if refused is not None:
        with pytest.raises(Exception, match=refused.error):
            ours(public, transform, tensors, compiled)
        return
    found = pytree.tree_leaves(ours(public, transform, tensors, compiled))
    for mine, right in zip(found, pytree.tree_leaves(want), strict=True):
        assert mine.shape == right.shape
        finite = mine.isfinite() & right.isfinite()
        if name not in ELSEWHERE.get(operand, ()) and (name, transform, operand) not in CONVENTIONS:
            assert torch.equal(finite, mine.isfinite() | right.isfinite()), (mine, right)
        torch.testing.assert_close(mine[finite], right[finite], rtol=1e-7, atol=1e-8)


#: Infinite and undefined elements are elsewhere: the derivative of a clamp at NaN is a convention.
CONVENTIONS = {("squared_relu", "hessian", "NaN")}
#: By operand: functions whose infinite and undefined elements are not where PyTorch's are. Its
#: attention multiplies them by zeros of the mask. It divides by the 0 elements of a group.
ELSEWHERE = {
    **{k: {name for name in FUNCTIONS if "attention" in name} for k in ("NaN", "infinity")},
    "empty": {"group_norm"},
}


@pytest.mark.cover
@pytest.mark.parametrize("operand", OPERANDS)
@pytest.mark.parametrize("transform", EAGER)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_transformed(name, transform, operand):
    check(name, transform, operand, compiled=False)


@pytest.mark.cover
@pytest.mark.parametrize("operand", ["strided", "expanded"])
@pytest.mark.parametrize("transform", ["forward and backward", "vmap(grad)"])
@pytest.mark.parametrize("name", [n for n in FUNCTIONS if len(samples(n)) > 1])
def test_one_argument_at_a_time(name, transform, operand):
    """A layout of one argument that the others do not have, as of a weight cut from another."""
    other = OPERANDS[operand](FUNCTIONS[name])
    for i in range(len(other)):
        tensors = list(samples(name))
        tensors[i] = other[i]
        check_tensors(name, transform, operand, tensors)


#: Functions with each kind of derivative: an operator's, views, a rule, a formula, a composition, a
#: same argument twice. The others are compiled with --all.
KINDS = ("rms_norm", "cat", "matmul", "roi_align", "linear_cross_entropy", "moe_ffn", "add",
         "add_rms_norm of itself", "index_add", "dropout")  # fmt: skip
_LONG = [pytest.param(name, marks=pytest.mark.long) for name in FUNCTIONS if name not in KINDS]


@pytest.mark.cover
@pytest.mark.parametrize("operand", ["sample", "empty", "0-d"])
@pytest.mark.parametrize("transform", COMPILED)
@pytest.mark.parametrize("name", [*KINDS, *_LONG])
def test_transformed_and_compiled(name, transform, operand):
    check(name, transform, operand, compiled=True)


def test_the_documentation_lists_what_is_refused():
    text = DOCS.read_text()
    assert text == written(text), "run PYTHONPATH=src:tests python -m support.transforms"
