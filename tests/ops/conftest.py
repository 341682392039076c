"""A fixture for tests of what NVRTC compiles for a GPU that the machine does not have."""

import pytest

from kernelwright.support.errors import ToolchainError
from kernelwright.toolchain import nvrtc


@pytest.fixture(scope="session")
def compiler():
    try:
        nvrtc.include_folders()
    except ToolchainError:
        pytest.skip("no NVRTC on this machine")
