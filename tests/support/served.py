"""What serves, for tests that make up records of it."""

from kernelwright.contract import H200
from kernelwright.dispatch.selection import config_of
from kernelwright.workbench.binary_info.inspection import specs_of


def config(lad, rung, case):
    """That of a rung for a case on an H200."""
    return dict(config_of(lad, rung, H200, specs_of(lad, case)))
