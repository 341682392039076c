"""The training check: what it measures, that it can fail, and what was recorded."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from kernelwright.models.gpt2 import GPT2, Config, Operators
from kernelwright.workbench import training

SMALL = Config(layers=2, heads=2, width=32, context=16, vocabulary=256)
TEXT = Path(__file__).parents[2] / "shared" / "data" / "tinyshakespeare.txt"


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(training, "MODEL", SMALL)
    monkeypatch.setattr(training, "BATCH", 2)
    monkeypatch.setattr(training, "EVERY", 2)
    return torch.frombuffer(bytearray(TEXT.read_bytes()), dtype=torch.uint8).long()


@pytest.mark.parametrize("swap", training.SWAPS)
def test_each_operator_trains_as_pytorchs(small, swap):
    native = training.curve(small, None, 0, 6)
    assert training.curve(small, swap, 0, 6) == pytest.approx(native, rel=2e-3)


def test_the_order_of_the_data_is_what_a_seed_changes(small):
    assert training.curve(small, None, 0, 4) == training.curve(small, None, 0, 4)
    assert training.curve(small, None, 0, 4) != training.curve(small, None, 1, 4)


def test_a_curve_outside_the_band_is_named():
    found = training.Training(((4.0, 3.0), (4.2, 3.1)), {"softmax": ((4.1, 3.05), (4.1, 3.2))}, {})
    assert found.band()[1] == pytest.approx((2.99, 3.11))
    (line,) = found.outside()
    assert line.startswith("softmax, order 1, steps to 20: 3.2000 is outside")
    nan = replace(found, swapped={"softmax": ((float("nan"), 3.05), (4.1, 3.05))})
    assert len(nan.outside()) == 1


def test_an_operator_that_the_model_has_not():
    with pytest.raises(ValueError, match=r"names: GPT-2 has no operator 'rope'; it has .*softmax"):
        Operators.with_kernels("rope")


def test_every_parameter_gets_a_gradient():
    torch.manual_seed(0)
    model = GPT2(SMALL, Operators.with_kernels())
    tokens = torch.randint(256, (2, 17))
    model(tokens[:, :-1], tokens[:, 1:]).backward()
    assert [n for n, p in model.named_parameters() if p.grad is None or not p.grad.any()] == []


def test_no_token_sees_those_that_follow():
    torch.manual_seed(0)
    model, tokens = GPT2(SMALL), torch.randint(256, (1, 16))
    later = tokens.clone()
    later[0, 9:] = 7
    assert torch.equal(model.hidden(tokens)[0, :9], model.hidden(later)[0, :9])
