"""A process for the kernels that are judged, shared by the tests of this folder: a start takes
seconds, and each process has caches of its own. A test whose kernel ends it starts another."""

import pytest

from kernelwright.machine import here
from kernelwright.workbench.judge.sandbox.sandbox import Box
from support.judging import QUICK


@pytest.fixture(scope="session")
def box():
    with Box(here(), limits=QUICK) as shared:
        yield shared
