"""The keys and values of earlier tokens, so that only the new token has to be computed."""

from __future__ import annotations

import torch

from .operators import attention_with_kv_cache


class Cache:
    """Keys and values of every layer, in tensors that keep their addresses.

    A sequence occupies the first `length_B` positions of its row. Rows may have different lengths:
    positions after a row's length are never read, and are overwritten as the row grows.

    Args:
        layers, batch, heads, positions, width: sizes; `heads` of keys and values, `width` of one.
        device, dtype: of the keys and values.

    Attributes:
        kv_L2BGSD: keys, then values, of L layers, B rows, G heads, S positions, D of a head.
        length_B: int64, tokens of each row so far.
        visible: the number of the S positions that attention reads; no row may be longer.
    """

    def __init__(
        self,
        layers: int,
        batch: int,
        heads: int,
        positions: int,
        width: int,
        device: torch.device,
        dtype: torch.dtype,
    ):
        shape = layers, 2, batch, heads, positions, width
        self.kv_L2BGSD = torch.zeros(shape, device=device, dtype=dtype)
        self.length_B = torch.zeros(batch, dtype=torch.int64, device=device)
        self.visible = positions

    @property
    def positions(self) -> int:
        return self.kv_L2BGSD.shape[4]

    def begin(self, layer: int, k_BGTD: torch.Tensor, v_BGTD: torch.Tensor) -> None:
        """Store the first T positions of every row."""
        tokens = k_BGTD.shape[2]
        self.kv_L2BGSD[layer, 0, :, :, :tokens] = k_BGTD
        self.kv_L2BGSD[layer, 1, :, :, :tokens] = v_BGTD

    def attend(
        self,
        layer: int,
        q_BH1D: torch.Tensor,
        k_BG1D: torch.Tensor,
        v_BG1D: torch.Tensor,
        scale: float,
    ) -> torch.Tensor:
        """Keep one token at the end of each row; its attention over the row: (B, H, 1, D)."""
        k_BGSD, v_BGSD = self.kv_L2BGSD[layer, :, :, :, : self.visible]
        new = (t.squeeze(2) for t in (q_BH1D, k_BG1D, v_BG1D))
        y_BHD = attention_with_kv_cache(*new, k_BGSD, v_BGSD, self.length_B, scale)
        return y_BHD.unsqueeze(2)
