"""GPT-2 as nanoGPT shapes it, of PyTorch's operators alone: the baseline of our model's speed."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional as F

from kernelwright.models.gpt2 import Config


class Attention(nn.Module):
    def __init__(self, config: Config):
        super().__init__()
        self.heads, self.drop = config.heads, config.dropout
        self.qkv = nn.Linear(config.width, 3 * config.width)
        self.out = nn.Linear(config.width, config.width)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = self.qkv(x).split(C, dim=2)
        q, k, v = (t.view(B, T, self.heads, C // self.heads).transpose(1, 2) for t in (q, k, v))
        drop = self.drop if self.training else 0.0
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=drop, is_causal=True)
        y = self.out(y.transpose(1, 2).contiguous().view(B, T, C))
        return F.dropout(y, self.drop, self.training)


class MLP(nn.Module):
    def __init__(self, config: Config):
        super().__init__()
        self.drop = config.dropout
        self.fc = nn.Linear(config.width, config.hidden)
        self.out = nn.Linear(config.hidden, config.width)

    def forward(self, x):
        y = self.out(F.gelu(self.fc(x), approximate="tanh"))
        return F.dropout(y, self.drop, self.training)


class Block(nn.Module):
    def __init__(self, config: Config):
        super().__init__()
        self.norm1, self.norm2 = (nn.LayerNorm(config.width) for _ in range(2))
        self.attention, self.mlp = Attention(config), MLP(config)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class PlainGPT2(nn.Module):
    """`model(tokens, targets)` gives the loss."""

    def __init__(self, config: Config):
        super().__init__()
        self.config = config
        self.tokens = nn.Embedding(config.vocabulary, config.width)
        self.positions = nn.Embedding(config.context, config.width)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width)
        self.head = nn.Linear(config.width, config.vocabulary, bias=False)
        self.tokens.weight = self.head.weight
        for name, p in self.named_parameters():
            if p.ndim == 2:
                onto = name.endswith("out.weight")
                nn.init.normal_(p, 0.0, 0.02 / math.sqrt(2 * config.layers) if onto else 0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(p)

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        at = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.tokens(tokens) + self.positions(at)
        x = F.dropout(x, self.config.dropout, self.training)
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))
