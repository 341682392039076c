"""A call in the form that kernels take: that of group_norm, where a set is a channel of all
samples."""

from __future__ import annotations

from pathlib import Path

from kernelwright.ops.norm.group_norm.tiling import VECTORS, Call, Pieces, cut


class BatchCall(Call):
    """A forward or backward of batch_norm, from its arguments' specs. Channels last, all samples
    are combined to one; channels first, the rows of a channel are its samples."""

    folder = Path(__file__).parent
    variance = "var"
    per_set = True

    def __init__(self, args):
        x = args["x"]
        channels = x.shape[2 if args["channels_last"] else 1]
        given = {"weight": None, "bias": None, "groups": channels, "silu": False, **args}
        super().__init__(given)
        self.per_set, self.rows = True, x.shape[0]
        if self.last:
            self.samples, self.length = min(1, x.shape[0]), x.shape[0] * x.shape[1]

    @property
    def sets(self) -> int:
        return self.channels

    def pieces(self, vectors: int = VECTORS) -> Pieces:
        count, piece = cut(self, vectors)
        step = self.channels * self.length
        return Pieces(0, self.length, step, self.channels, self.rows, self.length, count, piece)
