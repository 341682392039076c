"""The dispatched rung and config, for tests that make up records."""

from kernelwright.contract import H200
from kernelwright.dispatch.selection import config_of
from kernelwright.workbench.inspection import specs_of


def config(lad, rung, case):
    """The config of a rung for a case on an H200."""
    return dict(config_of(lad, rung, H200, specs_of(lad, case)))
