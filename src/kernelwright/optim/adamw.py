"""AdamW with one launch for all parameters of a group."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import attrgetter, itemgetter
from typing import Any

import torch
from torch.autograd.graph import increment_version

from kernelwright.ops.arguments import draw_seed
from kernelwright.ops.optimizer.adamw import step as adamw_step

HALF = (torch.float16, torch.bfloat16)
_PLAIN = {torch.Tensor, torch.nn.Parameter}
_get = {n: itemgetter(n) for n in ("step", "exp_avg", "exp_avg_sq", "max_exp_avg_sq", "master")}


class AdamW(torch.optim.Optimizer):
    """Adam with decoupled weight decay, with the arguments, groups and state of torch.optim.AdamW.

    State_dicts are interchangeable with those of torch.optim.AdamW. After the first step, steps can
    be captured in a CUDA graph; a learning rate that changes must then be a tensor on the device.
    The kernel reads GradScaler's scale and its inf flag; gradients stay scaled. For DTensors
    (FSDP2), each shard is updated.

    Args:
        params, lr, betas, eps, weight_decay, amsgrad, maximize: as in PyTorch.
        foreach, fused, capturable: stored in the groups for compatibility, otherwise ignored;
            `kw.use(adamw=...)` selects a rung, and every step can be captured.
        differentiable: must be False.
        master_weights: keep a float32 copy of each float16 or bfloat16 parameter in the state
            "master", and float32 moments; the parameter is the rounded copy.
        state_dtype: dtype of the moments. torch.bfloat16 rounds them stochastically, with a seed
            from PyTorch's generator, so that small changes are preserved on average.

    Raises:
        ValueError: an argument is out of range.
    """

    _step_supports_amp_scaling = True  # read by torch.amp.GradScaler

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | torch.Tensor = 1e-3,
        betas: tuple[float | torch.Tensor, float | torch.Tensor] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
        master_weights: bool = False,
        state_dtype: torch.dtype | None = None,
    ):
        for name, value in (("lr", lr), ("eps", eps), ("weight_decay", weight_decay)):
            if not value >= 0.0:
                raise ValueError(f"{name}: must not be negative, is {value}")
        if isinstance(lr, torch.Tensor) and lr.numel() != 1:
            raise ValueError(f"lr: must have one element, has {lr.numel()}")
        for i, beta in enumerate(betas):
            if not 0.0 <= beta < 1.0:
                raise ValueError(f"betas[{i}]: must be at least 0 and less than 1, is {beta}")
        if foreach and fused:
            raise ValueError("foreach: and fused cannot both be True")
        if differentiable:
            raise ValueError("differentiable: only torch.optim.AdamW has a differentiable step")
        if state_dtype not in (None, torch.float32, torch.bfloat16):
            raise ValueError(f"state_dtype: must be float32 or bfloat16, is {state_dtype}")
        defaults = {
            "lr": lr,
            "betas": tuple(float(b) for b in betas),
            "eps": eps,
            "weight_decay": weight_decay,
            "amsgrad": amsgrad,
            "maximize": maximize,
            "foreach": foreach,
            "capturable": capturable,
            "differentiable": differentiable,
            "fused": fused,
            "decoupled_weight_decay": True,
            "master_weights": master_weights,
            "state_dtype": state_dtype,
        }
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take a step for every parameter that has a gradient.

        Args:
            closure: recomputes the loss and the gradients.

        Returns:
            What the closure returned.

        Raises:
            RuntimeError: a gradient is sparse.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        if torch.compiler.is_compiling():
            self._step_uncompiled()
        else:
            self._step()
        return loss

    def _step(self) -> None:
        for group in self.param_groups:
            params = [p for p in group["params"] if p.grad is not None]
            if params:
                self._step_group(group, params)

    # a compiler has nothing to fuse in one launch, and tracing its preparation breaks the graph
    _step_uncompiled = torch._disable_dynamo(_step)

    def _step_group(self, group: dict[str, Any], params: list[torch.Tensor]) -> None:
        grads = [p.grad for p in params]
        if any(map(attrgetter("is_sparse"), grads)):
            raise RuntimeError(
                "params: AdamW does not support sparse gradients; torch.optim.SparseAdam does"
            )
        state = self.state
        states = [state[p] for p in params]
        if not all(states):
            for p, s in zip(params, states, strict=True):
                if not s:
                    _start(p, s, group)
        lists: dict[str, list[torch.Tensor]] = {"params": params, "grads": grads}
        for name in ("exp_avg", "exp_avg_sq", "step"):
            lists[name] = list(map(_get[name], states))
        if group["amsgrad"]:
            lists["max_exp_avg_sq"] = list(map(_get["max_exp_avg_sq"], states))
        if group["master_weights"]:
            lists["master"] = [
                _master(p, s) if p.dtype in HALF else p for p, s in zip(params, states, strict=True)
            ]
        if not _PLAIN.issuperset(map(type, params)):
            lists = _locals(lists)
        for part in _alike(lists):
            self._launch(group, part)

    def _launch(self, group: dict[str, Any], lists: dict[str, list[torch.Tensor]]) -> None:
        """One launch: lists of one dtype on one device."""
        params, copies = lists["params"], []
        if "master" in lists and lists["master"][0].dtype != params[0].dtype:
            params, copies = lists["master"], params
        device, lr = params[0].device, group["lr"]
        on_device = isinstance(lr, torch.Tensor) and lr.device == device
        beta1, beta2 = group["betas"]
        seed = None
        if group["state_dtype"] == torch.bfloat16:
            seed = draw_seed(device)
        adamw_step(
            params,
            lists["grads"],
            lists["exp_avg"],
            lists["exp_avg_sq"],
            lists.get("max_exp_avg_sq", []),
            lists["step"],
            copies,
            0.0 if on_device else float(lr),
            float(beta1),
            float(beta2),
            group["weight_decay"],
            group["eps"],
            group["maximize"],
            lr if on_device else None,
            _on(getattr(self, "grad_scale", None), device),
            _on(getattr(self, "found_inf", None), device),
            seed,
        )

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            for name, value in (("amsgrad", False), ("maximize", False), ("foreach", None),
                                ("capturable", False), ("differentiable", False),
                                ("fused", None), ("master_weights", False),
                                ("state_dtype", None)):  # fmt: skip
                group.setdefault(name, self.defaults.get(name, value))
            group["decoupled_weight_decay"] = True
            for p in group["params"]:
                s = self.state.get(p)
                if s:
                    s["step"] = torch.as_tensor(s["step"], dtype=torch.float32, device=p.device)

    @torch.no_grad()
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load what this class or torch.optim.AdamW saved.

        PyTorch casts every state to its parameter's dtype; here moments and masters keep their own
        dtypes.
        """
        super().load_state_dict(state_dict)
        saved = [i for group in state_dict["param_groups"] for i in group["params"]]
        mine = [(p, group) for group in self.param_groups for p in group["params"]]
        for index, (p, group) in zip(saved, mine, strict=True):
            given, state = state_dict["state"].get(index, {}), self.state.get(p, {})
            for name in ("exp_avg", "exp_avg_sq", "max_exp_avg_sq"):
                if name in given:
                    state[name] = given[name].to(p.device, _state_dtype(p, group))
            if "master" in given:
                state["master"] = given["master"].to(p.device, torch.float32)


def _state_dtype(p: torch.Tensor, group: dict[str, Any]) -> torch.dtype:
    if group["state_dtype"] is not None:
        return group["state_dtype"]
    return torch.float32 if group["master_weights"] and p.dtype in HALF else p.dtype


def _start(p: torch.Tensor, state: dict[str, Any], group: dict[str, Any]) -> None:
    """Initialise the state before the first step."""
    names = ("exp_avg", "exp_avg_sq", *(["max_exp_avg_sq"] if group["amsgrad"] else []))
    state["step"] = torch.zeros((), dtype=torch.float32, device=p.device)
    for name in names:
        state[name] = torch.zeros_like(
            p, dtype=_state_dtype(p, group), memory_format=torch.preserve_format
        )


def _master(p: torch.Tensor, state: dict[str, Any]) -> torch.Tensor:
    if "master" not in state:  # at the first step, or if torch.optim.AdamW saved the state
        state["master"] = p.detach().float()
    return state["master"]


def _locals(lists: dict[str, list[torch.Tensor]]) -> dict[str, list[torch.Tensor]]:
    """The shards of DTensors that this rank holds."""
    from torch.distributed.tensor import DTensor

    local: dict[str, list[torch.Tensor]] = {name: [] for name in lists}
    for k, p in enumerate(lists["params"]):
        for name, tensors in lists.items():
            t = tensors[k]
            if not isinstance(t, DTensor):
                local[name].append(t)
                continue
            assert isinstance(p, DTensor), type(p)
            if t.placements != p.placements:
                t = t.redistribute(p.device_mesh, p.placements)
            if name != "grads":
                increment_version(t)
            local[name].append(t.to_local())
    return local


def _alike(lists: dict[str, list[torch.Tensor]]) -> list[dict[str, list[torch.Tensor]]]:
    """The lists split into those that one launch can process: one device and dtype, no empty
    tensors."""
    dtype, device, numel = attrgetter("dtype"), attrgetter("device"), torch.Tensor.numel
    params, grads = lists["params"], lists["grads"]
    filled = map(bool, map(numel, params))
    facts = map(dtype, params), map(dtype, grads), map(device, params), filled
    kinds = list(zip(*facts, strict=True))
    different = dict.fromkeys(kinds)
    if any(kind[0].is_complex for kind in different):
        lists = {
            n: [torch.view_as_real(t) if t.is_complex() else t for t in ts]
            for n, ts in lists.items()
        }
    if len(different) == 1:
        return [lists]
    places = {kind: [k for k, other in enumerate(kinds) if other == kind] for kind in different}
    return [{n: [ts[k] for k in some] for n, ts in lists.items()} for some in places.values()]


def _on(t: torch.Tensor | None, device: torch.device) -> torch.Tensor | None:
    return None if t is None else t.to(device, non_blocking=True)
