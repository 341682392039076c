"""The keys and values of all sequences, in pages; and where those of a step's tokens belong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

import kernelwright as kw

from . import scales

EIGHT_BITS = (torch.float8_e4m3fn, torch.float8_e5m2, torch.int8)
#: Keys that a deterministic step attends to at a time: the same number in all steps, because the
#: order of sums depends on it. Less on a CPU, where each query has its own copy of the keys.
SPLITS = {"cpu": 64, "cuda": 256}


@dataclass(frozen=True)
class Tokens:
    """The T new tokens of a forward, of S sequences.

    Attributes:
        positions_1T: int64, of each token in its sequence.
        slots_T: int64, where its keys and values are stored: page * page size + place in the page.
            Those of a token with a negative slot are not stored.
        starts_S: int32 (S + 1,): the first token of each sequence, and the end of the last one.
        lengths_S: int32: tokens of each sequence, the new ones included.
        table_SP: int32: the pages of each sequence.
        longest_new, longest: at least the most new tokens of a sequence, and the most of all.
    """

    positions_1T: torch.Tensor
    slots_T: torch.Tensor
    starts_S: torch.Tensor
    lengths_S: torch.Tensor
    table_SP: torch.Tensor
    longest_new: int
    longest: int


class PagedCache:
    """Keys and values of every layer, for a model that attends through `KeyValues`: a batch of one
    row, in which the new tokens of all sequences stand one after the other.

    Args:
        model: whose configuration gives layers, heads and their width, and whose output layer gives
            device and dtype.
        pages, page_size: how many, and tokens in each.
        vocabulary: tokens are below it.
        dtype: of keys and values, by default the model's; or one of `EIGHT_BITS`.
        deterministic: whether the result of a token depends, in bits, only on its own sequence.

    Attributes:
        kv_L2NPGD: keys, then values, of L layers, in N pages of P tokens, G heads, D of a head.
        scales_L2: keys and values of an 8-bit cache are multiplied by these. For float8 they are 1,
            because its range suffices; for integers they are measured.
        tokens: of the next forward.
    """

    tokens: Tokens

    def __init__(
        self,
        model: Any,
        pages: int,
        page_size: int,
        vocabulary: int,
        dtype: torch.dtype | None = None,
        deterministic: bool = False,
    ):
        config, weight = model.config, model.head_VC
        shape = config.layers, 2, pages, page_size, config.kv_heads, config.head_width
        self.kv_L2NPGD = torch.zeros(shape, dtype=dtype or weight.dtype, device=weight.device)
        self.scales_L2 = [(1.0, 1.0)] * config.layers
        if dtype == torch.int8:
            self.scales_L2 = scales.measured(model, vocabulary)
        self._split = SPLITS[weight.device.type] if deterministic else 0

    @property
    def page_size(self) -> int:
        return self.kv_L2NPGD.shape[3]

    def place(self, table_SP: np.ndarray, first_S: np.ndarray, counts_S: np.ndarray) -> None:
        """Set the tokens of the next forward.

        Args:
            table_SP: int32, the pages of each sequence.
            first_S: the position of each sequence's first new token.
            counts_S: the number of its new tokens, at least 1.
        """
        device, size = self.kv_L2NPGD.device, self.page_size
        starts_S = np.concatenate(([0], counts_S.cumsum()))
        positions_T = np.arange(starts_S[-1]) + (first_S - starts_S[:-1]).repeat(counts_S)
        of_T = np.arange(len(counts_S)).repeat(counts_S)
        slots_T = table_SP[of_T, positions_T // size].astype(np.int64) * size + positions_T % size
        lengths_S = first_S + counts_S
        longest = int(lengths_S.max())
        used_SP = table_SP[:, : -(-longest // size)]
        self.tokens = Tokens(
            positions_1T=torch.from_numpy(positions_T[None]).to(device),
            slots_T=torch.from_numpy(slots_T).to(device),
            starts_S=torch.from_numpy(starts_S.astype(np.int32)).to(device),
            lengths_S=torch.from_numpy(lengths_S.astype(np.int32)).to(device),
            table_SP=torch.from_numpy(np.ascontiguousarray(used_SP)).to(device),
            longest_new=int(counts_S.max()),
            longest=longest,
        )

    def positions(self, tokens: int) -> torch.Tensor:
        """The position of each new token in its sequence: int64, (1, T)."""
        return self.tokens.positions_1T

    def attend(
        self,
        layer: int,
        q_1HTD: torch.Tensor,
        k_1GTD: torch.Tensor,
        v_1GTD: torch.Tensor,
        scale: float,
        window: int = 0,
        softcap: float = 0.0,
    ) -> torch.Tensor:
        """Store the new tokens' keys and values, then attend to all earlier tokens and itself:
        (1, H, T, D).

        Args:
            window: a token attends to itself and to the `window` - 1 tokens before it; 0 to all.
            softcap: as in `kw.attention_varlen`.
        """
        q_THD, k_TGD, v_TGD = (t[0].transpose(0, 1) for t in (q_1HTD, k_1GTD, v_1GTD))
        k_NPGD, v_NPGD = self.kv_L2NPGD[layer]
        k_scale, v_scale = self.scales_L2[layer]
        factors = {"k_scale": k_scale, "v_scale": v_scale}
        new = self.tokens
        kw.reshape_and_cache(k_TGD, v_TGD, k_NPGD, v_NPGD, new.slots_T, **factors)
        if new.longest_new == 1 and not (window or softcap or self._split):
            y_THD = kw.paged_attention(
                q_THD, k_NPGD, v_NPGD, new.table_SP, new.lengths_S, scale, **factors
            )
            return y_THD.transpose(0, 1)[None]
        y_THD = kw.attention_varlen(
            q_THD, k_NPGD, v_NPGD, new.starts_S, None, new.longest_new, new.longest,
            is_causal=True, window=(window - 1, -1), softcap=softcap, scale=scale,
            block_table=new.table_SP, seqused_k=new.lengths_S, split=self._split, **factors,
        )  # fmt: skip
        return y_THD.transpose(0, 1)[None]

    def copy(self, source: int, target: int) -> None:
        """Copy a page."""
        self.kv_L2NPGD[:, :, target] = self.kv_L2NPGD[:, :, source]
