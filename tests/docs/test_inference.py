"""The steps of docs/inference.md: all compute the same, and the page has their counts."""

import re

import pytest
import torch
from examples import inference_steps as steps

from support.paths import ROOT

PAGE = (ROOT / "docs" / "inference.md").read_text(encoding="utf-8")


@pytest.fixture(autouse=True)
def no_gradients(few_threads):
    with torch.no_grad():
        yield


@pytest.mark.long
def test_steps_of_the_encoder_compute_the_same():
    found = {name: step() for name, step in steps.encoder_steps().items()}
    quantized = found.pop("int8")
    first = found["padded"]
    for result in found.values():
        torch.testing.assert_close(result, first)
    error = (quantized - first).norm() / first.norm()
    assert f"{error:.0%}" == "2%" and "an error of 2%" in PAGE


@pytest.mark.long
def test_a_cache_and_a_shared_prompt_change_no_token():
    again, cached, copied, shared = (step() for step in steps.gpt_steps().values())
    assert again.equal(cached) and copied.equal(shared)
    assert len(set(cached[0, steps.PROMPT :].tolist())) > 4, "not one token again and again"


@pytest.mark.long
def test_the_page_has_the_counts():
    shown = re.findall(r"^\| (.*) \| [\d.]+ \|$", PAGE, re.M)
    assert shown == [*steps.rows(steps.encoder_steps()), *steps.rows(steps.gpt_steps())]
