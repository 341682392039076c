"""Replacements of the functions with which attentions rotate q and k. All call `kw.rope`.

Each takes the arguments of the function that it replaces. Families differ in which dimensions form
a pair, how wide the tables of angles are, how often a value is repeated in them, whether they are
complex, and whether one call rotates q and k. If a table has more than one angle per token and pair
(a shape that kw.rope does not support), the model's own function runs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

import kernelwright as kw

Function = Callable[..., Any]


def pairs_of_neighbours(own: Function) -> Function:
    """Cohere: dimensions 2i and 2i + 1 form a pair, and so do the columns of a table."""

    def rotate(q, k, cos, sin, unsqueeze_dim=1):
        if not _serves(q, cos, unsqueeze_dim):
            return own(q, k, cos, sin, unsqueeze_dim=unsqueeze_dim)
        return kw.rope(q, k, cos, sin, unsqueeze_dim, interleaved=True)

    return rotate


def first_half_of_neighbours(own: Function) -> Function:
    """GLM: neighbors form a pair; the first half of a table has each angle once."""

    def rotate(q, k, cos, sin, unsqueeze_dim=1):
        if not _serves(q, cos, unsqueeze_dim):
            return own(q, k, cos, sin, unsqueeze_dim=unsqueeze_dim)
        width = cos.shape[-1]
        cos, sin = cos[..., : width // 2], sin[..., : width // 2]
        return kw.rope(q, k, cos, sin, unsqueeze_dim, interleaved=True, rotary_dim=width)

    return rotate


def halves(own: Function) -> Function:
    """Llama: all of a head or its first dimensions; a table has each angle twice."""

    def rotate(q, k, cos, sin, unsqueeze_dim=1):
        if not _serves(q, cos, unsqueeze_dim):
            return own(q, k, cos, sin, unsqueeze_dim=unsqueeze_dim)
        return kw.rope(q, k, cos, sin, unsqueeze_dim)

    return rotate


def neighbours_to_halves(own: Function) -> Function:
    """DeepSeek V3: neighbors form a pair, whose results are in the two halves of a head."""

    def rotate(q, k, cos, sin, position_ids=None, unsqueeze_dim=1):
        if not _serves(q, cos, unsqueeze_dim):
            return own(q, k, cos, sin, unsqueeze_dim=unsqueeze_dim)
        cos, sin = (t[..., : t.shape[-1] // 2] for t in (cos, sin))
        wide = q.shape[-1]
        both = kw.rope(q, k, cos, sin, unsqueeze_dim, interleaved=True, rotary_dim=wide)
        return tuple(torch.cat((x[..., 0::2], x[..., 1::2]), dim=-1) for x in both)

    return rotate


def halves_by_half(own: Function) -> Function:
    """GPT-OSS: all of a head; a table has each angle once."""

    def rotate(q, k, cos, sin, unsqueeze_dim=1):
        if not _serves(q, cos, unsqueeze_dim):
            return own(q, k, cos, sin, unsqueeze_dim=unsqueeze_dim)
        return kw.rope(q, k, cos, sin, unsqueeze_dim, rotary_dim=q.shape[-1])

    return rotate


def vision(own: Function) -> Function:
    """Vision blocks: q and k are (T, H, D) or (B, T, H, D)."""

    def rotate(q, k, cos, sin):
        if not _serves(q, cos, -2):
            return own(q, k, cos, sin)
        return kw.rope(q, k, cos, sin, -2)

    return rotate


def one_at_a_time(own: Function) -> Function:
    """Gemma 4: q and k are rotated by one call each."""

    def rotate(x, cos, sin, unsqueeze_dim=1):
        if not _serves(x, cos, unsqueeze_dim):
            return own(x, cos, sin, unsqueeze_dim=unsqueeze_dim)
        return _alone(x, cos, sin, unsqueeze_dim)

    return rotate


def last_neighbours(own: Function) -> Function:
    """DeepSeek V4: neighbors among the last dimensions, of q or k; a table has each angle
    once."""

    def rotate(x, cos, sin, unsqueeze_dim=1):
        if not _serves(x, cos, unsqueeze_dim):
            return own(x, cos, sin, unsqueeze_dim=unsqueeze_dim)
        rest = x.shape[-1] - 2 * cos.shape[-1]
        more = {"interleaved": True, "rotary_dim": 2 * cos.shape[-1]}
        rotated = _alone(x[..., rest:], cos, sin, unsqueeze_dim, **more)
        return torch.cat((x[..., :rest], rotated), dim=-1)

    return rotate


def complex_numbers(heads: int) -> Callable[[Function], Function]:
    """Llama 4 and DeepSeek V2: neighbors, with a table of complex numbers; the heads of q and k
    are dimension `heads`."""

    def replaces(own: Function) -> Function:
        def rotate(xq, xk, freqs_cis):
            if not _serves(xq, freqs_cis, heads):
                return own(xq, xk, freqs_cis)
            cos, sin = freqs_cis.real.to(xq.device), freqs_cis.imag.to(xq.device)
            return kw.rope(xq, xk, cos, sin, heads, interleaved=True, rotary_dim=xq.shape[-1])

        return rotate

    return replaces


def _serves(x, table, heads: int) -> bool:
    """Whether a table has one row per token, the same for all heads."""
    if x.ndim not in (3, 4) or table.ndim not in (2, 3):
        return False
    if x.ndim == 3:
        tokens = x.shape[-3 if heads == -2 else -2]
        return table.shape[-2] == tokens and table.ndim == 2
    tokens = x.shape[2 if heads in (1, -3) else 1]
    batches = table.shape[0] if table.ndim == 3 else 1
    return table.shape[-2] == tokens and batches in (1, x.shape[0])


def _alone(x, cos, sin, heads: int, **more):
    """x rotated. kw.rope also needs a k: one head of x, whose result is not used."""
    k = x.detach().narrow(heads, 0, 1)
    return kw.rope(x, k, cos, sin, heads, **more)[0]


@dataclass(frozen=True)
class Rope:
    """A kind of function that rotates.

    Attributes:
        replaces: makes our replacement of such a function.
        arguments: the kind of its arguments; equivalence.py makes examples of each kind.
        tables: how a table holds the angles: "halves" (each value in both halves), "neighbours"
            (each value twice in a row), "once".
        part: only the dimensions of a head that the table covers are rotated.
    """

    replaces: Callable[[Function], Function]
    arguments: str = "q and k"
    tables: str = "halves"
    part: bool = False


_HALVES, _PART = Rope(halves), Rope(halves, part=True)
_FIRST_HALF = Rope(first_half_of_neighbours)
ROPES: dict[str, Rope] = {
    "llama.apply_rotary_pos_emb": _HALVES,
    "olmo.apply_rotary_pos_emb": _HALVES,
    "esm.apply_rotary_pos_emb": _HALVES,
    "hunyuan_vl.apply_rotary_pos_emb": _HALVES,
    "gpt_neox.apply_rotary_pos_emb": _PART,
    "phi3.apply_rotary_pos_emb": _PART,
    "nemotron.apply_rotary_pos_emb": _PART,
    "qwen2_vl.apply_rotary_pos_emb_vision": Rope(vision, "vision"),
    "cohere.apply_rotary_pos_emb": Rope(pairs_of_neighbours, tables="neighbours"),
    "glm.apply_rotary_pos_emb": Rope(first_half_of_neighbours, part=True),
    "helium.apply_rotary_pos_emb": _FIRST_HALF,
    "ernie4_5.apply_rotary_pos_emb": _FIRST_HALF,
    "glm4v.apply_rotary_pos_emb": Rope(pairs_of_neighbours, tables="neighbours", part=True),
    "ernie4_5_vl_moe.apply_rotary_pos_emb": Rope(pairs_of_neighbours, tables="neighbours"),
    "deepseek_v3.apply_rotary_pos_emb_interleave": Rope(neighbours_to_halves),
    "gpt_oss.apply_rotary_pos_emb": Rope(halves_by_half, tables="once"),
    "gemma4.apply_rotary_pos_emb": Rope(one_at_a_time, "x"),
    "deepseek_v4.apply_rotary_pos_emb": Rope(last_neighbours, "x", tables="once", part=True),
    "llama4.apply_rotary_emb": Rope(complex_numbers(2), "complex, tokens first", "once"),
    "deepseek_v2.apply_rotary_emb": Rope(complex_numbers(1), "complex, heads first", "once"),
}
