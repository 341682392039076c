"""The keys and values of earlier tokens, so that only the new token has to be computed."""

from __future__ import annotations

import math

import torch
from torch.nn import functional as F

from .operators import attention_with_kv_cache, decodes_in_one_kernel


class Cache:
    """Keys and values of every layer, in tensors that keep their addresses.

    A sequence occupies the first `length_B` positions of its row. Rows may have different lengths:
    positions after a row's length are never read, and are overwritten as the row grows.

    Args:
        layers, batch, heads, positions, width: sizes; `heads` counts those of keys and values.
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
        self._at_S = torch.arange(positions, device=device)
        self._hidden_B11S = torch.empty(0)

    @property
    def positions(self) -> int:
        return self.kv_L2BGSD.shape[4]

    def begin(self, layer: int, k_BGTD: torch.Tensor, v_BGTD: torch.Tensor) -> None:
        """Store the first T positions of every row."""
        tokens = k_BGTD.shape[2]
        self.kv_L2BGSD[layer, 0, :, :, :tokens] = k_BGTD
        self.kv_L2BGSD[layer, 1, :, :, :tokens] = v_BGTD

    def look(self) -> None:
        """Set the positions that each row's next token attends to; call before a step's layers."""
        at_S = self._at_S[: self.visible]
        later_B11S = at_S[None, None, None, :] > self.length_B[:, None, None, None]
        # added to scores; from a boolean mask attention would compute it in every layer
        self._hidden_B11S = torch.where(later_B11S, -math.inf, 0.0).to(self.kv_L2BGSD.dtype)

    def attend(
        self,
        layer: int,
        q_BH1D: torch.Tensor,
        k_BG1D: torch.Tensor,
        v_BG1D: torch.Tensor,
        scale: float,
    ) -> torch.Tensor:
        """Append one token to each row and return its attention over the row: (B, H, 1, D)."""
        k_BGSD, v_BGSD = kv_2BGSD = self.kv_L2BGSD[layer, :, :, :, : self.visible]
        new = [t.squeeze(2) for t in (q_BH1D, k_BG1D, v_BG1D)]
        if decodes_in_one_kernel(*new, k_BGSD, v_BGSD, self.length_B):
            y_BHD = attention_with_kv_cache(*new, k_BGSD, v_BGSD, self.length_B, scale)
            return y_BHD.unsqueeze(2)
        new_2BG1D = torch.stack((k_BG1D, v_BG1D))
        at_2BG1D = self.length_B[None, :, None, None, None].expand_as(new_2BG1D)
        kv_2BGSD.scatter_(3, at_2BG1D, new_2BG1D)
        grouped = q_BH1D.shape[1] != k_BG1D.shape[1]
        return F.scaled_dot_product_attention(
            q_BH1D, k_BGSD, v_BGSD, self._hidden_B11S, scale=scale, enable_gqa=grouped
        )
