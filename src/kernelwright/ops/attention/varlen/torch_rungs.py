"""Packed sequences in PyTorch: the formula, one sequence after another."""

from . import spec


def native(q, k, v, *rest):
    """The formula; the host waits for the GPU to read the lengths."""
    wide = spec.accumulated(q.dtype)
    y, lse = spec.reference(*(t.to(wide) for t in (q, k, v)), *rest)
    return y.to(q.dtype).contiguous(), lse


def native_backward(gy, q, k, v, y, lse, *rest):
    wide = spec.accumulated(q.dtype)
    sinks = rest[2]
    gq, gk, gv, gsinks = spec.backward_reference(
        *(t.to(wide) for t in (gy, q, k, v, y)), lse, *rest
    )
    of_sinks = q.dtype if sinks is None else sinks.dtype
    gradients = zip((gq, gk, gv, gsinks), (q.dtype, k.dtype, v.dtype, of_sinks), strict=True)
    return tuple(t.to(dtype).contiguous() for t, dtype in gradients)
