"""Two processes, each with half of a patched model: run by test_patch.py."""

import logging
import sys

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

import kernelwright as kw
from support import ranks
from support.patched_models import batch, make

logging.basicConfig(stream=sys.stdout, level=logging.INFO)


def run(rank):
    mesh = init_device_mesh("cpu", (2,))  # by default FSDP2 uses a GPU if there is one
    ids, labels = batch()
    alone = make()
    # each rank has a row of the batch; gradients are the mean over ranks
    losses = [alone(input_ids=ids[i : i + 1], labels=labels[i : i + 1]).loss for i in range(2)]
    (sum(losses) / 2).backward()
    for patch_first in (True, False):
        model = make()
        if patch_first:
            kw.patch(model)
        for layer in model.model.layers:
            if patch_first:  # a norm whose weight is not available when its result is read again
                fully_shard(layer.post_attention_layernorm, mesh=mesh)
            fully_shard(layer, mesh=mesh)
        fully_shard(model.lm_head, mesh=mesh)
        fully_shard(model, mesh=mesh)
        if not patch_first:
            report = kw.patch(model)
            assert {x.what for x in report.lines} == {"loss", "residual", "rope", "MLP", "norm"}
        here = slice(rank, rank + 1)
        loss = model(input_ids=ids[here], labels=labels[here]).loss
        loss.backward()
        torch.testing.assert_close(loss, losses[rank])
        for (name, p), q in zip(model.named_parameters(), alone.parameters(), strict=True):
            torch.testing.assert_close(p.grad.full_tensor(), q.grad, msg=lambda m, n=name: n + m)
        kw.unpatch(model)
        assert not any("forward" in vars(m) for m in model.modules())
    mine = ids[rank : rank + 1], labels[rank : rank + 1]
    losses = [train(patch, mesh, *mine) for patch in (0, 1)]
    torch.testing.assert_close(losses[1], losses[0], rtol=1e-2, atol=0)


def train(patch, mesh, ids, labels):
    """Losses of three steps in bfloat16; if patched, with our optimizer and clipping."""
    model = make()
    if patch:
        kw.patch(model)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16)
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    adamw = kw.optim.AdamW if patch else torch.optim.AdamW
    clip = kw.clip_grad_norm_ if patch else torch.nn.utils.clip_grad_norm_
    optimizer, losses = adamw(model.parameters(), lr=0.01), []
    for _ in range(3):
        loss = model(input_ids=ids, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        clip(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses)


if __name__ == "__main__":
    ranks.run(run)
