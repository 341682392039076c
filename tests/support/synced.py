"""SyncBatchNorm in two processes, compared with one BatchNorm on the joined batch; run by
test_batch_norm.py."""

import torch
from torch import distributed as dist
from torch import nn

import kernelwright as kw
from support import ranks

# samples of each process, positions, momentum, memory format
CASES = (
    ((3, 3), (4, 2), 0.1, torch.contiguous_format),
    ((1, 5), (4, 2), None, torch.channels_last),
    ((0, 4), (2, 2), 0.5, torch.contiguous_format),
    ((1, 1), (1, 1), 0.1, torch.contiguous_format),
)
CHANNELS = 6


def stepped(model, x, gy):
    """The results, gradients and buffers after a step."""
    x = x.clone(memory_format=torch.preserve_format).requires_grad_()
    y = model(x)
    gradients = torch.autograd.grad(y, (x, *model.parameters()), gy)
    return y, gradients, [b.clone() for b in model.buffers()]


def check(rank, sizes, positions, momentum, memory_format):
    torch.manual_seed(0)
    of_all = nn.Sequential(nn.BatchNorm2d(CHANNELS, momentum=momentum))
    with torch.no_grad():
        for p in of_all.parameters():
            p.normal_()
    made = nn.Sequential(nn.BatchNorm2d(CHANNELS, momentum=momentum))
    made.load_state_dict(of_all.state_dict())
    model = kw.nn.SyncBatchNorm.convert_sync_batchnorm(made)
    assert isinstance(model[0], kw.nn.SyncBatchNorm)
    x, gy = (torch.randn(sum(sizes), CHANNELS, *positions) * 3 + 5 for _ in range(2))
    x, gy = (t.to(memory_format=memory_format) for t in (x, gy))
    right = stepped(of_all, x, gy)
    start = sum(sizes[:rank])
    own = slice(start, start + sizes[rank])
    calls = counted()
    y, (gx, *of_parameters), buffers = stepped(model, x[own], gy[own])
    assert calls in (["all_gather_single", "all_reduce"],
                     ["all_gather_into_tensor", "all_reduce"]), calls  # fmt: skip
    calls.stop()
    torch.testing.assert_close(y, right[0][own], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(gx, right[1][0][own], rtol=1e-4, atol=1e-4)
    for mine, whole in zip(of_parameters, right[1][1:], strict=True):
        dist.all_reduce(mine)
        torch.testing.assert_close(mine, whole, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(buffers, right[2], rtol=1e-5, atol=1e-5)
    model.eval(), of_all.eval()  # without a collective: only one process calls it
    if rank == 0:
        torch.testing.assert_close(model(x), of_all(x), rtol=1e-5, atol=1e-5)


class counted(list):
    """The names of the collectives that are called from now on."""

    def __init__(self):
        super().__init__()
        self.own = {}
        names = ("all_gather", "all_gather_into_tensor", "all_gather_single", "all_reduce")
        for name in (n for n in names if hasattr(dist, n)):
            self.own[name] = getattr(dist, name)
            setattr(dist, name, self.watched(name))

    def watched(self, name):
        def call(*args, **kwargs):
            self.append(name)
            return self.own[name](*args, **kwargs)

        return call

    def stop(self):
        for name, own in self.own.items():
            setattr(dist, name, own)


def run(rank):
    for case in CASES:
        try:
            check(rank, *case)
        except Exception as error:
            raise AssertionError(case) from error


if __name__ == "__main__":
    ranks.run(run)
