"""What can go wrong between a source and a launch, in one line each."""

from __future__ import annotations


class ToolchainError(RuntimeError):
    """A kernel could not be built, loaded or launched."""


class CompileError(ToolchainError):
    """A compiler refused a kernel; the message holds its log."""


class NoSpace(RuntimeError):
    """The cache's disk is full. No ToolchainError: it is no fault of a kernel, and concerns all."""


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
