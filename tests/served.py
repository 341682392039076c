"""What serves, for tests that make up records of it."""

from kernelwright.contract import H200
from kernelwright.dispatch.selection import config_of
from kernelwright.workbench.inspect import specs_of
from kernelwright.workbench.listing import serving


def config(lad, rung, case):
    """That of a rung for a case on an H200."""
    return dict(config_of(lad, rung, H200, specs_of(lad, case)))


def rung(lad, case):
    """The name of the rung that serves a case on an H200."""
    return serving(lad, H200, specs_of(lad, case))
