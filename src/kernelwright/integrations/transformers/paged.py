"""Attention of transformers' continuous batching (`generate_batch`, `transformers serve`), for
models with `attn_implementation="kernelwright"`.

transformers keeps keys and values in blocks of 256 slots. Its own functions copy those of every
sequence to new tensors in each layer, and PyTorch's needs a mask of all queries and keys; this one
reads them in their blocks. Layers with a sliding window overwrite slots that a prompt's next tokens
still need, so there transformers copies the keys within the window, and this attends to the copy.
"""

from __future__ import annotations

from typing import Any

import torch

NAME = "paged|kernelwright"


def paged_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    *,
    cache: Any = None,
    cu_seq_lens_q: torch.Tensor | None = None,
    cu_seq_lens_k: Any = None,
    max_seqlen_q: int = 0,
    max_seqlen_k: Any = 0,
    read_index: Any = None,
    write_index: Any = None,
    block_table: torch.Tensor | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    """The function that transformers calls for each layer.

    Args:
        query: (1, H, N, D), the N tokens of all sequences of a step. key, value: (1, G, N, D).
        cache: transformers' PagedAttentionCache, which gets the new keys and values.
        cu_seq_lens_q, cu_seq_lens_k: the ends of the sequences; those of keys by the kind of layer,
            if a model has two. max_seqlen_q, max_seqlen_k: the lengths of the longest sequences.
        read_index, write_index: for each group of layers the slots of all keys and of the new ones;
            nothing to read if no sequence has earlier tokens.
        softcap: if given, scores become softcap tanh(score / softcap).
        s_aux: (H,) an additional score in each softmax that belongs to no key.

    Returns:
        (1, N, H, D), and None instead of weights.

    Raises:
        ValueError: there is no cache: this is a step of no continuous batching.
        NotImplementedError: dropout, or a mask or table that this attention does not read.
    """
    import kernelwright as kw

    if cache is None or cu_seq_lens_q is None:
        raise ValueError(
            f"{NAME}: is for continuous batching; for other calls use attn_implementation="
            "'kernelwright'"
        )
    if dropout or attention_mask is not None or block_table is not None:
        raise NotImplementedError(f"{NAME}: dropout, attention_mask, block_table: not supported")
    layer = module.layer_idx
    span = cache.sliding_windows[layer]  # 1: no window
    if isinstance(cu_seq_lens_k, dict):
        kind = "full_attention" if span == 1 else "sliding_attention"
        cu_seq_lens_k, max_seqlen_k = cu_seq_lens_k[kind], max_seqlen_k[kind]
    changes = {
        "is_causal": True,
        "window": (-1 if span == 1 else span - 1, -1),
        "softcap": softcap or 0.0,
        "sinks": s_aux,
        "scale": scaling,
    }
    q = query[0].transpose(0, 1)
    group, place = cache.layer_index_to_group_indices[layer]
    if span == 1 and read_index[group].numel():
        caches = cache.key_cache[place], cache.value_cache[place]
        for slots, new in zip(caches, (key, value), strict=True):
            slots.index_copy_(0, write_index[group], new[0].transpose(0, 1))
        blocks = [t.view(-1, cache.block_size, *t.shape[1:]) for t in caches]
        table = _table(read_index[group], cu_seq_lens_k, max_seqlen_k, cache.block_size)
        y = kw.attention_varlen(
            q, *blocks, cu_seq_lens_q, None, max_seqlen_q, max_seqlen_k,
            block_table=table, seqused_k=cu_seq_lens_k.diff(), **changes,
        )  # fmt: skip
    else:
        k, v = cache.update(key, value, layer, read_index, write_index)
        y = kw.attention_varlen(
            q, k, v, cu_seq_lens_q, cu_seq_lens_k, max_seqlen_q, max_seqlen_k, **changes
        )
    return y.unsqueeze(0), None


def _table(slots: torch.Tensor, ends: torch.Tensor, longest: int, size: int) -> torch.Tensor:
    """The block of each `size` keys of each sequence: int32 (sequences, blocks of the longest).
    Entries after a sequence's last block have no meaning."""
    firsts = torch.arange(0, longest, size, device=slots.device)
    at = (ends[:-1, None] + firsts).clamp(max=slots.numel() - 1)
    return (slots[at] // size).to(torch.int32)
