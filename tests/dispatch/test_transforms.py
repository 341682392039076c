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
    ours,
    pytorchs,
    refusal,
    written,
)


def check(name, transform, operand, compiled):
    if (name, transform, operand) in CONVENTIONS:
        pytest.skip("a convention")
    public = FUNCTIONS[name]
    try:
        tensors = OPERANDS[operand](public)
        public.pytorch(*tensors)
        want = pytorchs(public, transform, tensors)
    except Exception:  # noqa: BLE001
        pytest.skip("PyTorch does not support it either")
    refused = refusal(name, f"compiled {transform}" if compiled else transform)
    if refused is not None:
        with pytest.raises(Exception, match=refused.error):
            ours(public, transform, tensors, compiled)
        return
    found = pytree.tree_leaves(ours(public, transform, tensors, compiled))
    for mine, right in zip(found, pytree.tree_leaves(want), strict=True):
        assert mine.shape == right.shape
        finite = mine.isfinite() & right.isfinite()
        if name not in ELSEWHERE.get(operand, ()):
            assert torch.equal(finite, mine.isfinite() | right.isfinite()), (mine, right)
        torch.testing.assert_close(mine[finite], right[finite], rtol=1e-7, atol=1e-8)


#: The derivative of a clamp at NaN.
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
@pytest.mark.parametrize("operand", ["sample", "empty", "0-d"])
@pytest.mark.parametrize("transform", COMPILED)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_transformed_and_compiled(name, transform, operand):
    check(name, transform, operand, compiled=True)


def test_the_documentation_lists_what_is_refused():
    text = DOCS.read_text()
    assert text == written(text), "run PYTHONPATH=src:tests python -m support.transforms"
