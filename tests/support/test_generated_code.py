"""Functions made from source text."""

import gc
import linecache
import traceback

import pytest
import torch

import kernelwright as kw
from kernelwright.contract import Unsupported
from kernelwright.support import generated_code


def test_an_error_inside_the_binding_shows_the_generated_lines():
    with kw.use({"softmax": "triton_row"}), pytest.raises(Unsupported) as e:
        kw.softmax(torch.ones(2, 3, dtype=torch.float64), -1)
    shown = "".join(traceback.format_exception(e.value))
    assert "in call\n    return run(" in shown


def test_the_lines_are_kept_as_long_as_the_function():
    source = "def f(x):\n    return g(x) + 1\n"
    made = generated_code.function(source, "f", {"g": abs}, "test")
    file = made.__code__.co_filename
    linecache.checkcache()
    assert made(-2) == 3 and linecache.getline(file, 2) == "    return g(x) + 1\n"
    del made
    gc.collect()
    assert file not in linecache.cache
