"""The keys and values of the tokens so far, so that a new token is computed alone."""

from __future__ import annotations

import torch


class Cache:
    """Keys and values of every layer, in tensors that keep their addresses.

    A sequence occupies the first `length_B` positions of its row. Rows may have different lengths:
    what lies behind a row's length is never read, and is overwritten as the row grows.

    Args:
        layers, batch, heads, positions, width: sizes; `heads` of keys and values, `width` of one.
        device, dtype: of the keys and values.

    Attributes:
        k_LBGSD, v_LBGSD: L layers, B rows, G heads of keys and values, S positions, D of a head.
        length_B: int64, tokens of each row so far.
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
        shape = layers, batch, heads, positions, width
        self.k_LBGSD = torch.zeros(shape, device=device, dtype=dtype)
        self.v_LBGSD = torch.zeros(shape, device=device, dtype=dtype)
        self.length_B = torch.zeros(batch, dtype=torch.int64, device=device)
        #: of the S positions, how many attention looks at; a row may not grow beyond it
        self.visible = positions

    @property
    def positions(self) -> int:
        return self.k_LBGSD.shape[3]

    def begin(self, layer: int, k_BGTD: torch.Tensor, v_BGTD: torch.Tensor) -> None:
        """Keep the first T positions of every row."""
        tokens = k_BGTD.shape[2]
        self.k_LBGSD[layer, :, :, :tokens] = k_BGTD
        self.v_LBGSD[layer, :, :, :tokens] = v_BGTD

    def extend(
        self, layer: int, k_BG1D: torch.Tensor, v_BG1D: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Keep one token at the end of each row.

        Returns:
            Keys and values of the visible positions, (B, G, S, D).
        """
        k_BGSD, v_BGSD = self.k_LBGSD[layer], self.v_LBGSD[layer]
        at_BG1D = self.length_B[:, None, None, None].expand_as(k_BG1D)
        k_BGSD.scatter_(2, at_BG1D, k_BG1D)
        v_BGSD.scatter_(2, at_BG1D, v_BG1D)
        return k_BGSD[:, :, : self.visible], v_BGSD[:, :, : self.visible]

    def seen_B11S(self) -> torch.Tensor:
        """Whether a row's newest token, at position `length_B`, sees each visible position."""
        at_S = torch.arange(self.visible, device=self.length_B.device)
        return at_S[None, None, None, :] <= self.length_B[:, None, None, None]
