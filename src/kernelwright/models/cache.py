"""The keys and values of earlier tokens, so that only the new token has to be computed."""

from __future__ import annotations

import math
from typing import Protocol

import torch

from .attention import attention_of_last, causal_attention
from .operators import attention_with_kv_cache, decodes_in_one_kernel


class KeyValues(Protocol):
    """What a model asks of the keys and values of earlier tokens. A model calls `positions` once
    for the new tokens, then `attend` in each layer."""

    def positions(self, tokens: int) -> torch.Tensor:
        """The position of each new token in its sequence: int64, (B, tokens)."""
        ...

    def attend(
        self,
        layer: int,
        q_BHTD: torch.Tensor,
        k_BGTD: torch.Tensor,
        v_BGTD: torch.Tensor,
        scale: float,
        window: int = 0,
        softcap: float = 0.0,
    ) -> torch.Tensor:
        """Store keys and values of the new tokens, and return the causal attention of these tokens
        over all that is stored of their sequences: (B, H, T, D).

        Args:
            window, softcap: as in `causal_attention`.
        """
        ...


class Cache:
    """Keys and values of every layer, in tensors that keep their addresses: a `KeyValues`.

    A sequence occupies the first `length_B` positions of its row. Rows may have different lengths:
    positions after a row's length are never read, and are overwritten as the row grows. The new
    tokens are either the beginnings of all rows, or one token of each row.

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
        self._masks: dict[int, torch.Tensor] = {}

    @property
    def capacity(self) -> int:
        return self.kv_L2BGSD.shape[4]

    def positions(self, tokens: int) -> torch.Tensor:
        """The position of each new token: int64, (B, tokens).

        Raises:
            ValueError: there are more tokens than a row has positions.
        """
        if tokens > self.capacity:
            raise ValueError(f"tokens: {tokens} in a row, the cache has {self.capacity} positions")
        self._masks.clear()
        if tokens == 1:
            return self.length_B[:, None]
        return self._at_S[:tokens].expand(len(self.length_B), tokens)

    def attend(
        self,
        layer: int,
        q_BHTD: torch.Tensor,
        k_BGTD: torch.Tensor,
        v_BGTD: torch.Tensor,
        scale: float,
        window: int = 0,
        softcap: float = 0.0,
    ) -> torch.Tensor:
        """Store keys and values, and return the attention of the new tokens: (B, H, T, D)."""
        tokens = q_BHTD.shape[2]
        if tokens == 1:
            return self._step(layer, q_BHTD, k_BGTD, v_BGTD, scale, window, softcap)
        self.kv_L2BGSD[layer, 0, :, :, :tokens] = k_BGTD
        self.kv_L2BGSD[layer, 1, :, :, :tokens] = v_BGTD
        return causal_attention(q_BHTD, k_BGTD, v_BGTD, scale, 0.0, window, softcap)

    def _step(
        self,
        layer: int,
        q_BH1D: torch.Tensor,
        k_BG1D: torch.Tensor,
        v_BG1D: torch.Tensor,
        scale: float,
        window: int,
        softcap: float,
    ) -> torch.Tensor:
        """Append one token to each row and return its attention over the row: (B, H, 1, D)."""
        k_BGSD, v_BGSD = kv_2BGSD = self.kv_L2BGSD[layer, :, :, :, : self.visible]
        new = [t.squeeze(2) for t in (q_BH1D, k_BG1D, v_BG1D)]
        window = window if window < self.visible else 0
        limited = window or softcap
        if not limited and decodes_in_one_kernel(*new, k_BGSD, v_BGSD, self.length_B):
            y_BHD = attention_with_kv_cache(*new, k_BGSD, v_BGSD, self.length_B, scale)
            return y_BHD.unsqueeze(2)
        new_2BG1D = torch.stack((k_BG1D, v_BG1D))
        at_2BG1D = self.length_B[None, :, None, None, None].expand_as(new_2BG1D)
        kv_2BGSD.scatter_(3, at_2BG1D, new_2BG1D)
        return attention_of_last(q_BH1D, k_BGSD, v_BGSD, self._mask(window), scale, softcap)

    def _mask(self, window: int) -> torch.Tensor:
        """What is added to the scores of the new tokens: (B, 1, 1, S).

        From a boolean mask attention would compute it in every layer; all layers of a step with
        the same window share it.
        """
        if window not in self._masks:
            at_S = self._at_S[: self.visible]
            last_B1 = self.length_B[:, None]
            hidden_BS = at_S > last_B1
            if window:
                hidden_BS |= at_S <= last_B1 - window
            mask_BS = torch.where(hidden_BS, -math.inf, 0.0).to(self.kv_L2BGSD.dtype)
            self._masks[window] = mask_BS[:, None, None, :]
        return self._masks[window]
