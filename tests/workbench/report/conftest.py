"""A report of made-up records, made once per test module."""

import pytest

from kernelwright.workbench.report import report
from support.reports import made_up


@pytest.fixture(scope="module")
def page():
    return report.html(made_up())
