"""Stand-in."""

import torch


def attention(q, k, v, starts, lengths, table, window, softcap, scale, split, k_scale, v_scale):
    out = torch.empty(*q.shape[:2], v.shape[3], dtype=q.dtype)
    g = k.shape[2]
    for i, length in enumerate(lengths.tolist()):
        a, b = int(starts[i]), int(starts[i + 1])
        keys = k[table[i].long()].flatten(0, 1)[:length].to(q.dtype) * k_scale
        values = v[table[i].long()].flatten(0, 1)[:length].to(q.dtype) * v_scale
        for t in range(a, b):
            end = length - b + t + 1
            begin = max(0, end - window) if window else 0
            kk, vv = keys[begin:end].transpose(0, 1), values[begin:end].transpose(0, 1)
            s = (q[t].view(g, -1, q.shape[2]) @ kk.mT) * scale
            if softcap:
                s = softcap * torch.tanh(s / softcap)
            out[t] = (s.softmax(-1) @ vv).flatten(0, 1)
    return out
