"""The common part of GPT-2 and Llama: logits or the loss of the last hidden state, new weights.

Letters at the end of a name are its shape: B batch, T tokens, C width, V vocabulary.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn

from .cache import KeyValues
from .operators import linear, linear_cross_entropy, softcapped


class LanguageModel(nn.Module):
    """`model(tokens)` returns logits, `model(tokens, targets)` the loss. A subclass has the
    parameter `tokens`, `output` if config.tied is not set, and the method `hidden`.

    Attributes:
        logit_softcap: if above 0, logits become logit_softcap tanh(logit / logit_softcap).
    """

    config: Any
    tokens: nn.Parameter
    output: nn.Parameter

    logit_softcap: float = 0.0

    @property
    def head_VC(self) -> torch.Tensor:
        """The output layer's weight."""
        return self.tokens if self.config.tied else self.output

    def initialize(self) -> None:
        """Draw new weights."""
        for name, p in self.named_parameters():
            if p.ndim == 2:
                onto_stream = name.endswith(("attention_out.weight", "mlp_out.weight"))
                scale = 1 / math.sqrt(2 * self.config.layers) if onto_stream else 1.0
                nn.init.normal_(p, 0.0, 0.02 * scale)
            elif name.endswith("bias"):
                nn.init.zeros_(p)
        for module in self.modules():
            if isinstance(module, (nn.LayerNorm, nn.RMSNorm)):
                module.reset_parameters()

    def forward(
        self,
        tokens_BT: torch.Tensor,
        targets_BT: torch.Tensor | None = None,
        cache: KeyValues | None = None,
    ) -> torch.Tensor:
        """Logits (B, T, V), or the mean cross entropy of the targets.

        Args:
            tokens_BT: integers below V; at most `context` per row.
            targets_BT: the tokens that follow; -100 is ignored. If targets are given, the logits
                are never all in memory at once.
            cache: keys and values of earlier tokens, to which these are added.

        Raises:
            ValueError: without a cache, a row has more tokens than the context.
        """
        hidden_BTC = self.hidden(tokens_BT, cache)
        if targets_BT is None:
            return self.logits(hidden_BTC)
        return linear_cross_entropy(hidden_BTC, self.head_VC, targets_BT, self.logit_softcap)

    def hidden(self, tokens_BT: torch.Tensor, cache: KeyValues | None = None) -> torch.Tensor:
        """The last layer's result, normalized: (B, T, C)."""
        raise NotImplementedError

    def check_length(self, tokens: int) -> None:
        """Raise ValueError if a row is longer than the context."""
        context = self.config.context
        if context < tokens:
            raise ValueError(f"tokens: {tokens} in a row, the model's context is {context}")

    def logits(self, hidden_BTC: torch.Tensor) -> torch.Tensor:
        return softcapped(linear(hidden_BTC, self.head_VC), self.logit_softcap)
