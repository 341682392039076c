"""Times a ladder: every rung beside PyTorch, its peers and the machine's limit, in one run.

Peers are other libraries' functions. A subject that has some says so in its ladder,
`Ladder(..., peers="peers:PEERS")`, and `ops/<subject>/peers.py` holds one tuple for the forward
and the backward:

    def _forward(x, dim):                        # the operator's arguments, by name
        from liger_kernel.ops.softmax import LigerSoftmaxFunction
        return lambda: LigerSoftmaxFunction.apply(x)

    def _backward(gy, y, dim):
        from liger_kernel.ops.softmax import LigerSoftmaxFunction
        x = y.log().requires_grad_()             # any x with this softmax
        out = LigerSoftmaxFunction.apply(x)
        return lambda: torch.autograd.grad(out, x, gy, retain_graph=True)[0]

    PEERS = (
        Peer("liger", "softmax", _forward, requires="liger_kernel"),
        Peer("liger", "softmax.backward", _backward, requires="liger_kernel"),
    )

See `contract.Peer` for what `make` may and may not do. A peer that raises on a case (Liger has a
longest row) is recorded with its message; a wrong one is recorded as wrong and gets no time.
"""
