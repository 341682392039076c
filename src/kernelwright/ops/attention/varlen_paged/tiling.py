"""Tiles and parts of a call of attention over pages."""

from __future__ import annotations

from kernelwright.contract import Config
from kernelwright.contract.arithmetic import cdiv, next_power_of_2
from kernelwright.contract.symbolic_int import fixed

MOST_SHARES = 64
SCRATCH = 2**26  # elements of partial results
#: With `split`, whatever the config: the order of a query's sums must not depend on other sizes.
_FIXED = {"rows": 64, "cols": 64, "warps": 4, "stages": 2}
_FIXED_FLOAT = {"rows": 16, "cols": 16, "warps": 4, "stages": 1}  # chains of multiply-adds


class Call:
    """Sizes of a call and of its tiles.

    Attributes:
        each, tokens: heads of q and queries of a tile of `shape["rows"]` rows. group: heads of q
            per head of the cache. tiles: programs per share.
        shares: programs that divide the keys of a sequence; each has `parts_each` parts.
    """

    def __init__(self, gpu, config: Config, args):
        q, k, v, table = args["q"], args["k"], args["v"], args["table"]
        self.args = args
        self.page, heads, self.d, self.dv = *k.shape[1:], v.shape[3]
        self.group = fixed(q.shape[1] // heads)
        self.d2, self.dv2 = (max(16, next_power_of_2(n)) for n in (self.d, self.dv))
        self.shape = self._shape(config, q.dtype, args["split"])
        self.each = min(self.group, self.shape["rows"])
        self.tokens = self.shape["rows"] // self.each
        self.sequences = table.shape[0]
        # one more, for padding after the last sequence
        places = q.shape[0] // self.tokens + self.sequences + 1
        self.tiles = places * heads * cdiv(self.group, self.each)
        self.shares, self.parts_each = self._shares(gpu, q, table.shape[1] * self.page)

    def _shape(self, config: Config, dtype, split: int) -> Config:
        if dtype.itemsize == 4:
            return _FIXED_FLOAT
        shape = dict(_FIXED if split else config)
        if self.d2 + self.dv2 > 256:
            shape |= {"cols": 32, "stages": 2}
        return shape

    def _shares(self, gpu, q, keys: int) -> tuple[int, int]:
        """Enough shares to fill the GPU. With `split` a share is a single part, because parts are
        merged one by one; or all, if partial results would take much memory."""
        split = self.args["split"]
        if split:
            parts = max(1, cdiv(keys, split))
            sums = q.shape[0] * q.shape[1] * parts * self.dv
            if self.tiles >= 2 * gpu.sms or parts > 65_535 or sums > SCRATCH:
                return 1, parts
            return parts, 1
        wanted = cdiv(2 * gpu.sms, max(self.tiles, 1))
        return max(1, min(wanted, cdiv(keys, 2 * self.shape["cols"]), MOST_SHARES)), 1

    @property
    def options(self) -> dict[str, int | bool]:
        """The constants on which the first kernel is specialized."""
        names = {"LEFT": "left", "RIGHT": "right", "CAPPED": "capped"}
        return {
            **{name: self.args[of] for name, of in names.items()},
            "SLOPES": self.args["slopes"] is not None,
        }

    @property
    def common(self) -> dict[str, int | bool]:
        """Those of both kernels."""
        return {
            "SPLIT": self.args["split"],
            "SINKS": self.args["sinks"] is not None,
            "DV": self.dv,
            "DV2": self.dv2,
            "COLS": self.shape["cols"],
        }
