"""A causal language model's forward that gives the loss without the logits.

While a model trains, its logits are wanted for nothing but the loss, and they are the largest
tensor there is. So in training, given labels, `output.logits` is None; in evaluation, and without
labels, the forward is transformers' own. `skip_logits=False` or `True` says otherwise for one call.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from typing import Any

from . import forwards, masks


@cache
def causal_lm(
    own: Callable[..., Any], softcaps: bool, output: str, causal: bool
) -> Callable[..., Any]:
    """What replaces `own`, a causal language model's forward.

    Args:
        softcaps: the config's final_logit_softcapping is heeded.
        output: the name of the class in transformers.modeling_outputs that it returns.
        causal: its decoder makes causal masks, with a window or without.
    """
    from transformers import modeling_outputs
    from transformers.loss.loss_utils import ForCausalLMLoss
    from transformers.utils.generic import can_return_tuple

    Output = getattr(modeling_outputs, output)
    signature = inspect.signature(own)
    parameters = tuple(signature.parameters)[1:]
    crosses = {"cross_attentions"} & set(inspect.signature(Output).parameters)

    @can_return_tuple
    def loss_only(self, labels=None, logits_to_keep=0, **kwargs):
        outputs = getattr(self, self.base_model_prefix)(**kwargs)
        loss = self.lm_head(
            outputs.last_hidden_state,
            labels,
            kwargs.get("shift_labels"),
            kwargs.get("num_items_in_batch"),
            kwargs.get("ignore_index", -100),
            self.config.final_logit_softcapping if softcaps else None,
        )
        return Output(
            loss=loss,
            past_key_values=outputs.past_key_values,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
            **{name: getattr(outputs, name) for name in crosses},
        )

    def forward(self, *args, skip_logits=None, **kwargs):
        given = dict(zip(parameters, args, strict=False)) | kwargs
        labels = given.get("labels")
        if causal and masks.only_causal(self, given):
            given["only_causal"] = kwargs["only_causal"] = True  # for the layers
        if skip_logits is None:
            skip_logits = self.training
        if (
            skip_logits
            and labels is not None
            and not _keeps_some(given.get("logits_to_keep", 0))
            # not the property `loss_function`, which logs for some models: no compiler traces that
            and getattr(self, "_loss_function", ForCausalLMLoss) is ForCausalLMLoss
            and forwards.takes(self.lm_head, forwards.head_and_loss)
        ):
            return loss_only(self, **given)
        return own(self, *args, **kwargs)

    # Trainer reads there which columns of a dataset the model takes
    forward.__signature__ = signature
    return forward


def _keeps_some(logits_to_keep) -> bool:
    return not isinstance(logits_to_keep, int) or logits_to_keep != 0
