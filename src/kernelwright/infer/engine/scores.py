"""Log-probabilities of tokens, and the most likely tokens in their place."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from .request import Score

_ROWS = 64  # that are computed at a time: sorting takes 8 bytes for each token of the vocabulary


def scores(logits_RV: torch.Tensor, tokens: Sequence[int], counts: Sequence[int]) -> list[Score]:
    """The scores of one token per row, with `counts` most likely tokens each, in float32."""
    result = []
    for first in range(0, len(tokens), _ROWS):
        part = slice(first, first + _ROWS)
        result += _scores(logits_RV[part], tokens[part], counts[part])
    return result


def _scores(logits_RV: torch.Tensor, tokens: Sequence[int], counts: Sequence[int]) -> list[Score]:
    logprob_RV = logits_RV.float().log_softmax(-1)
    token_R1 = torch.tensor(tokens, device=logits_RV.device)[:, None]
    of_tokens = logprob_RV.gather(-1, token_R1)[:, 0].tolist()
    if not any(counts):
        return [Score(logprob, ()) for logprob in of_tokens]
    top_RK = most_likely(logprob_RV, max(counts))
    tops = zip(top_RK.tolist(), logprob_RV.gather(-1, top_RK).tolist(), strict=True)
    return [
        Score(logprob, tuple(zip(top[:k], logprobs[:k], strict=True)))
        for logprob, (top, logprobs), k in zip(of_tokens, tops, counts, strict=True)
    ]


def most_likely(logprob_RV: torch.Tensor, count: int) -> torch.Tensor:
    """The tokens with the largest log-probabilities, in descending order; of equal ones those with
    the smaller number first: int64, (R, count), or (R, V) if there are fewer tokens."""
    # The bits of a float32 in the order of the numbers, then the token: no two keys are equal, so
    # there is only one order.
    bits_RV = logprob_RV.view(torch.int32)
    ordered_RV = torch.where(bits_RV < 0, bits_RV ^ 0x7FFFFFFF, bits_RV).long()
    last = logprob_RV.shape[-1] - 1
    token_V = torch.arange(last + 1, device=logprob_RV.device)
    key_RV = (ordered_RV << 32) | (last - token_V)
    return last - (key_RV.topk(min(count, last + 1), -1).values & 0xFFFFFFFF)
