"""A report of made-up records, made once for each module of tests."""

import pytest

from kernelwright.workbench.report import report
from support.reports import made_up


@pytest.fixture(scope="module")
def page():
    return report.html(made_up())
