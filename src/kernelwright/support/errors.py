"""Errors whose messages are for users, and the exit codes of the command line."""

from __future__ import annotations

# Exit codes of every command.
GOOD = 0  # the result is right, or the work is done
WRONG = 1  # a check failed; of `compare`, the second side is slower
USAGE = 2  # the request cannot be carried out
INCONCLUSIVE = 3  # nothing could run or be timed here
AMBIGUOUS = 4  # of `compare`: too noisy to say which side is faster
UNEQUAL = 5  # of `compare`: a side is wrong or fails, which is worse than slower
STOPPED = 130  # interrupted by the user


class UserError(Exception):
    """An error whose message is for the user: the command line prints it without a traceback and
    ends with `exit_code`."""

    exit_code = USAGE


class UsageError(UserError):
    """Wrong usage; the message states the reason in one line."""


class ToolchainError(UserError, RuntimeError):
    """A kernel could not be built, loaded or launched."""

    exit_code = INCONCLUSIVE


class CompileError(ToolchainError):
    """A compiler rejected a kernel; the message contains its log."""


class NoSpace(UserError, RuntimeError):
    """The cache's disk is full. Not a ToolchainError: it affects all kernels and is not caused by
    any of them."""

    exit_code = INCONCLUSIVE


class CompiledDuringCapture(ToolchainError):
    """A kernel would have to be built while a CUDA graph is being captured."""

    def __init__(self, what: str):
        super().__init__(
            f"{what} would have to be compiled during CUDA graph capture; "
            "call kw.warmup with the same arguments before capturing"
        )


def refuse_capture(what: str) -> None:
    """Raise CompiledDuringCapture if the current stream is being captured."""
    if capturing():
        raise CompiledDuringCapture(what)


def capturing() -> bool:
    """Whether the current stream is being captured into a CUDA graph."""
    import torch

    return torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()
