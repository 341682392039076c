"""Peers of linear; imported only for timing."""

from __future__ import annotations

import torch

from kernelwright.contract import Peer


def _cublaslt(x, weight, bias, gate, residual, activation, keep, tf32=False):
    """One cuBLASLt kernel with bias and activation in its epilogue."""
    plain = gate is None and residual is None and not keep
    if bias is None or not plain or activation not in ("relu", "gelu_tanh"):
        raise NotImplementedError("its epilogues are a bias followed by relu or gelu_tanh")
    of_weight, none = weight.t(), x.new_empty(0)

    def run():
        y = torch._addmm_activation(bias, x, of_weight, use_gelu=activation == "gelu_tanh")
        return y, none

    return run


PEERS = (Peer("cublaslt", "linear", _cublaslt, requires="torch"),)
