"""Embedding."""

from __future__ import annotations

import torch

from kernelwright.ops.embedding.lookup import embedding


class Embedding(torch.nn.Embedding):
    """torch.nn.Embedding with `kw.embedding`: the same arguments, weight and state_dict.

    Shape:
        input: any, int32 or int64; the result is (*input.shape, embedding_dim).

    Raises:
        NotImplementedError: in the forward, if max_norm, scale_grad_by_freq or sparse is set.
        TypeError: in the forward, if the input is not int32 or int64.
    """

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return embedding(
            input,
            self.weight,
            self.padding_idx,
            self.max_norm,
            self.norm_type,
            self.scale_grad_by_freq,
            self.sparse,
        )
