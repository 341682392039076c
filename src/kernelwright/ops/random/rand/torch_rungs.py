"""The same numbers in PyTorch's integer operators, some hundred kernels; torch.rand itself, which
takes no state, is timed as a peer."""

from .definition import bernoulli as native_bernoulli  # noqa: F401
from .definition import bernoulli_p as native_p  # noqa: F401
from .definition import normal
from .definition import uniform as native_uniform  # noqa: F401


def native_normal(state, size, threads, dtype):
    return normal(state, size, threads, dtype).to(dtype)
