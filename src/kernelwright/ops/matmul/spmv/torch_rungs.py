"""spmv in PyTorch: gathers and segment sums, and PyTorch's product of a CSR matrix."""

import torch


def manual(rows, columns, values, x):
    """Every product as an element of a tensor, then the sums of its segments."""
    wide = torch.promote_types(values.dtype, torch.float32)
    products = values.to(wide) * x.to(wide)[columns.long()]
    if 0 in (products.numel(), rows.numel() - 1):
        return values.new_zeros(rows.numel() - 1)
    return torch.segment_reduce(products, "sum", offsets=rows.long()).to(values.dtype)


def native(rows, columns, values, x):
    """cuSPARSE; on a CPU, where there is none for 16-bit types, in float32."""
    if 0 in (values.numel(), x.numel(), rows.numel() - 1):
        return values.new_zeros(rows.numel() - 1)
    dtype = values.dtype if x.is_cuda else torch.promote_types(values.dtype, torch.float32)
    size = (rows.numel() - 1, x.numel())
    # the libraries read its parts as if they were contiguous
    parts = (t.contiguous() for t in (rows, columns, values.to(dtype)))
    matrix = torch.sparse_csr_tensor(*parts, size, check_invariants=False)
    return (matrix @ x.to(dtype)).to(values.dtype)
