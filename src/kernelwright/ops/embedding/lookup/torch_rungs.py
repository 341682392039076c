"""embedding in PyTorch: selecting and adding rows, and PyTorch's own operator."""

import torch


def manual(weight, indices, num_weights, padding_idx):
    # torch.compile would count a negative index from the end; here it is past the end, and fails
    flat = torch.where(indices < 0, num_weights, indices).reshape(-1)
    return weight.index_select(0, flat).reshape(*indices.shape, weight.shape[1])


def native(weight, indices, num_weights, padding_idx):
    return torch.embedding(weight, indices, padding_idx)


def manual_backward(gy, indices, num_weights, padding_idx):
    """In float32, because in 16 bits a sum of many small numbers stops growing."""
    rows = gy.reshape(indices.numel(), gy.shape[-1])
    wide = rows.to(torch.promote_types(gy.dtype, torch.float32))
    flat = indices.reshape(-1)
    kept = torch.where((flat == padding_idx)[:, None], 0.0, wide)
    return wide.new_zeros(num_weights, gy.shape[-1]).index_add(0, flat, kept).to(gy.dtype)


def native_backward(gy, indices, num_weights, padding_idx):
    if not gy.numel():  # PyTorch's kernel treats rows of no elements as rows of one
        return gy.new_zeros(num_weights, gy.shape[-1])
    return torch.ops.aten.embedding_dense_backward(gy, indices, num_weights, padding_idx, False)
