"""Errors in words for users, and the exit codes of the command line."""

from __future__ import annotations

# Exit codes of every command.
GOOD = 0  # right, or done
WRONG = 1  # a check failed; of `compare`, the second side is slower
USAGE = 2  # what was asked for cannot be
INCONCLUSIVE = 3  # nothing could run or be timed here
AMBIGUOUS = 4  # of `compare`: too noisy to say which side is faster
UNEQUAL = 5  # of `compare`: a side is wrong or fails, which is worse than slower
STOPPED = 130  # by the user


class UserError(Exception):
    """An error whose message is for the user: the command line prints it without a traceback and
    ends with `exit_code`."""

    exit_code = USAGE


class UsageError(UserError):
    """What the user asked for cannot be; the message says why in a line."""


class ToolchainError(UserError, RuntimeError):
    """A kernel could not be built, loaded or launched."""

    exit_code = INCONCLUSIVE


class CompileError(ToolchainError):
    """A compiler refused a kernel; the message holds its log."""


class NoSpace(UserError, RuntimeError):
    """The cache's disk is full. No ToolchainError: it is no fault of a kernel, and concerns all."""

    exit_code = INCONCLUSIVE


class CompiledDuringCapture(ToolchainError):
    """A kernel would have to be built while a CUDA graph is being captured."""

    def __init__(self, what: str):
        super().__init__(
            f"{what} would have to be compiled during CUDA graph capture; "
            "call kw.warmup with the same arguments before capturing"
        )


def refuse_capture(what: str) -> None:
    """Raise CompiledDuringCapture where the current stream is being captured."""
    import torch

    if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
        raise CompiledDuringCapture(what)
