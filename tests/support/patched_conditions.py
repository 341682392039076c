"""What people do around a model, each tried on an unpatched and a patched one.

A condition is a function of (model, patch) that returns named tensors; `patch` is called where a
user would, and does nothing for the unpatched model. docs/patch.md's table is made from CONDITIONS.
"""

import contextlib
import copy
import io
import pickle
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional as F
from torch.nn.utils import parametrize, prune
from transformers.pytorch_utils import Conv1D

import kernelwright as kw
from support.patched_models import InFloat64, batch, make

FAMILIES = (
    "Llama", "Qwen 3", "Mistral", "Gemma 2", "Gemma 3", "GPT-2", "Phi 3", "GPT-OSS", "Mixtral",
    "Nemotron",
)  # fmt: skip
DENSE = tuple(family for family in FAMILIES if family not in ("GPT-OSS", "Mixtral"))
EXACT, ROUNDED, BF16 = 1e-8, 1e-5, 0.1  # the largest difference, of the largest element


@dataclass(frozen=True)
class Condition:
    """
    Attributes:
        what: as written in the docs.
        run: (model, patch) to the tensors to compare.
        within: the tolerance.
        fails: the error that the unpatched model raises as well.
        refuses: the error that only a patched model raises.
        options: of the config.
        families: in which it is tried.
        long: whether it runs with --all only.
    """

    what: str
    run: Callable
    within: float
    fails: type[Exception] | None
    refuses: type[Exception] | None
    options: dict
    families: tuple[str, ...]
    long: bool


CONDITIONS: dict[str, Condition] = {}


def condition(
    what, within=EXACT, fails=None, refuses=None, families=FAMILIES, long=False, **options
):
    def of(run):
        CONDITIONS[run.__name__] = Condition(
            what, run, within, fails, refuses, options, families, long
        )
        return run

    return of


# what is compared


def step(model, more=(), run=None, **given):
    """The loss with labels, every gradient, and logits. `more`: tensors with gradients."""
    run = model if run is None else run
    ids, labels = batch()
    model.zero_grad()
    loss = run(input_ids=ids, labels=labels, **given).loss
    loss.backward()
    results = {"loss": loss.detach()} | gradients(model)
    results |= {f"gradient {i}": t.grad for i, t in enumerate(more)}
    with torch.no_grad():
        results["logits"] = run(input_ids=ids, **given).logits
    return results


def gradients(model):
    of = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
    return {f"gradient of {n}": g.clone() for n, g in of.items()}


def parts(model):
    """{kind: modules of that kind in the decoder}."""
    kinds = {"norm": [], "activation": [], "linear": [], "block": [], "layer": []}
    for module in model.modules():
        cls = type(module).__name__
        if "Norm" in cls:
            kinds["norm"].append(module)
        elif cls in ("SiLU", "SiLUActivation", "GELUTanh", "NewGELUActivation",
                     "ReLUSquaredActivation"):  # fmt: skip
            kinds["activation"].append(module)
        elif isinstance(module, (nn.Linear, Conv1D)):
            kinds["linear"].append(module)
        elif cls.endswith(("MLP", "Attention")):
            kinds["block"].append(module)
        elif cls.endswith(("DecoderLayer", "GPT2Block")):
            kinds["layer"].append(module)
    return kinds


def changed(value):
    """A module's result or argument, changed."""
    if isinstance(value, torch.Tensor):
        return value * 1.25 if value.is_floating_point() else value
    if type(value) is tuple and value:
        return (changed(value[0]), *value[1:])
    return value


def at_each_part(model, patch, hook):
    """Results with hooks on each kind of module in turn. `hook(module)` returns a handle."""
    patch(model)
    results = {}
    for kind, modules in parts(model).items():
        handles = [hook(m) for m in modules]
        results |= {f"{kind}: {n}": t for n, t in step(model).items()}
        for handle in handles:
            handle.remove()
    return results


# hooks


@condition("forward hooks that return another result (activation steering, sparse autoencoders)")
def forward_hooks(model, patch):
    return at_each_part(
        model, patch, lambda m: m.register_forward_hook(lambda m, args, out: changed(out))
    )


@condition("forward pre-hooks that return other arguments")
def forward_pre_hooks(model, patch):
    def hook(module, args, named):
        named = {n: changed(v) if n == "hidden_states" else v for n, v in named.items()}
        return changed(args) if args else args, named

    return at_each_part(model, patch, lambda m: m.register_forward_pre_hook(hook, with_kwargs=True))


@condition("forward hooks that record what they see (probing)")
def recorded(model, patch):
    seen = {}

    def hook(module, args, out):
        for i, t in enumerate((*args, *(out if type(out) is tuple else (out,)))):
            if isinstance(t, torch.Tensor):
                seen[len(seen), type(module).__name__, i] = t.detach().clone()

    return at_each_part(model, patch, lambda m: m.register_forward_hook(hook)) | seen


@condition("full backward hooks that change gradients")
def backward_hooks(model, patch):
    return at_each_part(
        model, patch, lambda m: m.register_full_backward_hook(lambda m, gx, gy: changed(gx))
    )


@condition("full backward pre-hooks")
def backward_pre_hooks(model, patch):
    return at_each_part(
        model, patch, lambda m: m.register_full_backward_pre_hook(lambda m, gy: changed(gy))
    )


@condition("hooks of all modules (`register_module_forward_hook` and the others)")
def global_hooks(model, patch):
    def hook(at):
        def of(module, *values):
            some = isinstance(module, (nn.Linear, Conv1D)) or "Norm" in type(module).__name__
            return changed(values[at]) if some else None

        return of

    patch(model)
    results = {}
    places = {"forward_pre_hook": 0, "forward_hook": 1, "full_backward_pre_hook": 0,
              "full_backward_hook": 0}  # fmt: skip
    for name, at in places.items():
        handle = getattr(nn.modules.module, f"register_module_{name}")(hook(at))
        try:
            results |= {f"{name}: {n}": t for n, t in step(model).items()}
        finally:
            handle.remove()
    return results


@condition("hooks of tensors, and `retain_grad`, in what modules return")
def tensor_hooks(model, patch):
    kept = []

    def hook(module, args, out):
        t = out[0] if type(out) is tuple else out
        if t.requires_grad:
            t.retain_grad()
            t.register_hook(lambda g: 1.5 * g)
            kept.append(t)

    patch(model)
    for kind in ("norm", "block"):
        for module in parts(model)[kind]:
            module.register_forward_hook(hook)
    results = step(model)
    return results | {f"retained {i}": t.grad for i, t in enumerate(kept) if t.grad is not None}


# weights


class Scaled(nn.Module):
    """A parametrization with a parameter of its own."""

    def __init__(self, weight):
        super().__init__()
        self.factor = nn.Parameter(1 + 0.1 * torch.arange(weight.shape[-1], dtype=weight.dtype))

    def forward(self, weight):
        return weight * self.factor


class LowRank(nn.Module):
    """LoRA as a parametrization: W + B A."""

    def __init__(self, weight):
        super().__init__()
        out, width = weight.shape
        self.a = nn.Parameter(filled(2, width).to(weight))
        self.b = nn.Parameter(filled(out, 2).to(weight))

    def forward(self, weight):
        return weight + self.b @ self.a


def filled(*shape):
    count = torch.Size(shape).numel()
    return torch.linspace(-1, 1, count, dtype=torch.float64).sin().view(shape)


def parametrized(model):
    for module in (*parts(model)["norm"], *parts(model)["linear"]):
        if getattr(module, "weight", None) is not None:
            kind = Scaled if module.weight.ndim == 1 else LowRank
            parametrize.register_parametrization(module, "weight", kind(module.weight))


@condition("parametrizations of norms and linear layers, before `patch`")
def parametrizations_before(model, patch):
    parametrized(model)
    patch(model)
    return step(model)


@condition("parametrizations after `patch`, copied, and removed again")
def parametrizations_after(model, patch):
    patch(model)
    parametrized(model)
    results = step(model) | {f"copy: {n}": t for n, t in step(copy.deepcopy(model)).items()}
    for module in list(model.modules()):
        if parametrize.is_parametrized(module):
            parametrize.remove_parametrizations(module, "weight")
    return results | {f"removed: {n}": t for n, t in step(model).items()}


@condition("parametrizations that are removed after `patch` (merging an adapter)")
def parametrizations_removed(model, patch):
    parametrized(model)
    patch(model)
    for module in list(model.modules()):
        if parametrize.is_parametrized(module):
            parametrize.remove_parametrizations(module, "weight")
    return step(model)


@condition("`torch.nn.utils.weight_norm` of parametrizations, and pruning by a mask")
def weight_norm(model, patch):
    patch(model)
    for module in parts(model)["linear"]:
        nn.utils.parametrizations.weight_norm(module)
    for module in parts(model)["norm"]:
        if getattr(module, "weight", None) is not None:
            prune.l1_unstructured(module, "weight", 0.25)
    return step(model)


@condition("in-place edits of a norm's result before attention and MLP read it")
def edited_results(model, patch):
    def hook(module, args, named):
        x = args[0] if args else named["hidden_states"]
        x.mul_(1.25)
        x[:, 0] += 0.5

    patch(model)
    for module in parts(model)["block"]:
        module.register_forward_pre_hook(hook, with_kwargs=True)
    return step(model)


@condition("in-place edits of what attention and MLP return")
def edited_blocks(model, patch):
    def hook(module, args, out):
        (out[0] if type(out) is tuple else out).add_(0.5)

    patch(model)
    for module in parts(model)["block"]:
        module.register_forward_hook(hook)
    return step(model)


def backward_after(edit, model, patch):
    patch(model)
    ids, labels = batch()
    loss = model(input_ids=ids, labels=labels).loss
    edit(model)
    loss.backward()
    return gradients(model)


@condition("a weight changed in place between forward and backward", fails=RuntimeError)
def edited_weights(model, patch):
    @torch.no_grad()
    def edit(model):
        for p in model.parameters():
            p.mul_(1.5)

    return backward_after(edit, model, patch)


@condition("`load_state_dict` between forward and backward", fails=RuntimeError)
def loaded_in_place(model, patch):
    twin = {n: 1.5 * t for n, t in model.state_dict().items()}
    return backward_after(lambda m: m.load_state_dict(twin), model, patch)


@condition("`load_state_dict(assign=True)` between forward and backward")
def loaded_by_assignment(model, patch):
    twin = {n: 1.5 * t for n, t in model.state_dict().items()}
    patch(model)
    before = list(model.parameters())
    ids, labels = batch()
    loss = model(input_ids=ids, labels=labels).loss
    model.load_state_dict(twin, assign=True)
    loss.backward()
    return {str(i): p.grad for i, p in enumerate(before) if p.grad is not None}


@condition("frozen parts: layers, all but the norms, all weights (a soft prompt)")
def frozen(model, patch):
    patch(model)
    results = {}
    for kept in (".1.", "norm", "ln_"):
        for name, p in model.named_parameters():
            p.requires_grad_(kept in name)
        if any(p.requires_grad for p in model.parameters()):
            results |= {f"{kept}: {n}": t for n, t in step(model).items()}
    model.requires_grad_(False)
    ids, labels = batch()
    prompt = model.get_input_embeddings()(ids).requires_grad_()
    loss = model(inputs_embeds=prompt, labels=labels).loss
    return results | {"of a prompt": torch.autograd.grad(loss, prompt)[0]}


@condition("tied weights", tie_word_embeddings=True)
def tied(model, patch):
    patch(model)
    return step(model)


@condition("a weight shared by two norms, another eps and another activation, after `patch`")
def replaced_parts(model, patch):
    patch(model)
    norms = [m for m in parts(model)["norm"] if getattr(m, "weight", None) is not None]
    norms[1].weight = norms[0].weight
    for module in norms:
        name = "variance_epsilon" if hasattr(module, "variance_epsilon") else "eps"
        setattr(module, name, 0.01)
    acts = {id(m) for m in parts(model)["activation"]}
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if id(child) in acts:
                setattr(module, name, nn.Tanh())
    return step(model)


# adapters


class LoRA(nn.Module):
    """An adapter around a linear layer; DoRA with a magnitude."""

    def __init__(self, base, dora=False):
        super().__init__()
        self.base, weight = base, base.weight
        self.transposed = isinstance(base, Conv1D)
        out, width = weight.shape[::-1] if self.transposed else weight.shape
        self.a = nn.Parameter(filled(2, width).to(weight))
        self.b = nn.Parameter(filled(out, 2).to(weight))
        self.magnitude = nn.Parameter(weight.new_full((out,), 2.0)) if dora else None

    def forward(self, x):
        y = self.base(x) + F.linear(F.linear(x, self.a), self.b)
        if self.magnitude is None:
            return y
        weight = (self.base.weight.mT if self.transposed else self.base.weight) + self.b @ self.a
        return y * (self.magnitude / weight.norm(dim=1).detach())

    @property
    def weight(self):
        return self.base.weight


def adapted(model, dora):
    model.requires_grad_(False)
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            linear = isinstance(child, (nn.Linear, Conv1D)) and not isinstance(module, LoRA)
            if linear and name != "lm_head":
                setattr(module, name, LoRA(child, dora))


@condition("LoRA around linear layers, before `patch`")
def lora_before(model, patch):
    adapted(model, dora=False)
    patch(model)
    return step(model)


@condition("LoRA around linear layers, after `patch`")
def lora_after(model, patch):
    patch(model)
    adapted(model, dora=False)
    return step(model)


@condition("DoRA around linear layers, before and after `patch`")
def dora(model, patch):
    twin = copy.deepcopy(model)
    adapted(model, dora=True)
    patch(model)
    patch(twin)
    adapted(twin, dora=True)
    return step(model) | {f"after: {n}": t for n, t in step(twin).items()}


# torch.func and derivatives


@condition("`torch.func.functional_call` with other weights (hypernetworks)")
def functional(model, patch):
    patch(model)
    weights = {n: (1.5 * p).detach().requires_grad_() for n, p in model.named_parameters()}
    ids, labels = batch()
    given = {"input_ids": ids, "labels": labels}
    loss = functional_call(model, weights, (), given).loss
    found = torch.autograd.grad(loss, list(weights.values()), allow_unused=True)
    return {n: g for n, g in zip(weights, found, strict=True) if g is not None}


@condition("MAML: an inner step that is differentiated (of a loss of logits)",
           attn_implementation="eager")  # fmt: skip
def maml(model, patch):
    patch(model)
    ids, labels = batch()

    def loss(weights):
        z = functional_call(model, weights, (), {"input_ids": ids, "use_cache": False}).logits
        return F.cross_entropy(z[:, :-1].flatten(0, 1), labels[:, 1:].flatten())

    weights = dict(model.named_parameters())
    inner = torch.autograd.grad(loss(weights), list(weights.values()), create_graph=True,
                                allow_unused=True, materialize_grads=True)  # fmt: skip
    faster = {n: p - 0.1 * g for (n, p), g in zip(weights.items(), inner, strict=True)}
    loss(faster).backward()
    return gradients(model)


def of_one(model):
    def loss(weights, ids, labels):
        given = {"input_ids": ids[None], "labels": labels[None], "use_cache": False}
        return functional_call(model, weights, (), given).loss

    return loss, {n: p.detach() for n, p in model.named_parameters()}


@condition("`torch.func.grad`")
def func_grad(model, patch):
    patch(model)
    loss, weights = of_one(model)
    ids, labels = batch()
    return grad(loss)(weights, ids[1], labels[1])


# with a pad token, GPT-2 looks for it in the ids, which vmap cannot do
@condition("gradients of each example: `vmap(grad)`", attn_implementation="eager",
           pad_token_id=None, families=DENSE)  # fmt: skip
def per_example(model, patch):
    patch(model)
    loss, weights = of_one(model)
    return vmap(grad(loss), (None, 0, 0), randomness="different")(weights, *batch())


def penalty(model, inputs, **given):
    """The gradients of a penalty on gradients."""
    ids, labels = batch()
    loss = model(input_ids=ids, labels=labels, **given).loss
    first = torch.autograd.grad(loss, inputs, create_graph=True, allow_unused=True)
    total = sum(g.square().sum() for g in first if g is not None)
    found = torch.autograd.grad(total, inputs, allow_unused=True, materialize_grads=True)
    return {str(i): g for i, g in enumerate(found)}


@condition("a penalty on gradients, of named inputs, with logits (`skip_logits=False`)",
           attn_implementation="eager")  # fmt: skip
def second_derivatives(model, patch):
    more = {"skip_logits": False} if patch(model) else {}
    return penalty(model, list(model.parameters()), **more)


@condition("the same without logits", refuses=NotImplementedError, attn_implementation="eager")
def second_without_logits(model, patch):
    patch(model)
    return penalty(model, list(model.parameters()))


# memory and precision


@condition("gradient checkpointing, without reentrancy", within=ROUNDED)
def checkpointed(model, patch):
    patch(model)
    model.gradient_checkpointing_enable({"use_reentrant": False})
    return step(model, use_cache=False)


@condition("gradient checkpointing, reentrant", within=ROUNDED)
def checkpointed_reentrant(model, patch):
    patch(model)
    model.gradient_checkpointing_enable({"use_reentrant": True})
    return step(model, use_cache=False)


@condition("`save_on_cpu`, and a graph that is used twice")
def saved_on_cpu(model, patch):
    patch(model)
    ids, labels = batch()
    with torch.autograd.graph.save_on_cpu():
        loss = model(input_ids=ids, labels=labels).loss
    again = model(input_ids=ids, labels=labels).loss
    loss.backward()
    again.backward(retain_graph=True)
    again.backward()
    return gradients(model)


@condition("autocast to bfloat16, within the error of bfloat16", within=BF16)
def autocast(model, patch):
    patch(model.float())
    ids, labels = batch()
    with torch.autocast("cpu", torch.bfloat16):
        loss = model(input_ids=ids, labels=labels).loss
    loss.backward()
    return {"loss": loss.detach()} | gradients(model)


@condition("hidden states and attentions as outputs", attn_implementation="eager")
def outputs(model, patch):
    patch(model)
    ids, _ = batch()
    out = model(input_ids=ids, output_hidden_states=True, output_attentions=True)
    named = {"state": out.hidden_states, "attention": out.attentions}
    return {f"{n} {i}": t.detach() for n, of in named.items() for i, t in enumerate(of)}


# torch.compile


def compiled(model, patch, **options):
    patch(model)
    torch.compiler.reset()
    run = torch.compile(model, backend="aot_eager", **options)
    ids, labels = batch()
    loss = run(input_ids=ids, labels=labels, use_cache=False).loss
    loss.backward()
    torch.compiler.reset()
    return {"loss": loss.detach()} | gradients(model)


@condition("`torch.compile`", within=ROUNDED, long=True)
def compiled_static(model, patch):
    return compiled(model, patch)


@condition("`torch.compile(dynamic=True)`", within=ROUNDED, long=True)
def compiled_dynamic(model, patch):
    return compiled(model, patch, dynamic=True)


# several devices


@contextlib.contextmanager
def one_process():
    from torch import distributed as dist

    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group("gloo", init_method=f"file://{folder}/s", rank=0, world_size=1)
        try:
            yield
        finally:
            dist.destroy_process_group()


@condition("DDP")
def ddp(model, patch):
    patch(model)
    with one_process():
        return step(model, run=nn.parallel.DistributedDataParallel(model))


@condition("FSDP2, of layers, norms and the head, before and after `patch`",
           tie_word_embeddings=False)  # fmt: skip
def fsdp(model, patch):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    results = {}
    with one_process():
        mesh = init_device_mesh("cpu", (1,))
        for before in (True, False):
            twin = copy.deepcopy(model)
            if before:
                patch(twin)
            for module in (parts(twin)["norm"][1], *parts(twin)["layer"], twin.lm_head, twin):
                fully_shard(module, mesh=mesh)
            if not before:
                patch(twin)
            ids, labels = batch()
            loss = twin(input_ids=ids, labels=labels).loss
            loss.backward()
            results |= {f"{before} {n}": p.grad.full_tensor().clone()
                        for n, p in twin.named_parameters() if p.grad is not None}  # fmt: skip
            if patch(twin):
                kw.unpatch(twin)
            loss = twin(input_ids=ids, labels=labels).loss
            results[f"{before} unpatched"] = loss.detach()
    return results


def replica(model, factor):
    """A replica as nn.DataParallel makes it; here, of weights times a factor."""
    twins = {m: m._replicate_for_data_parallel() for m in model.modules()}
    for module, twin in twins.items():
        for name, child in module._modules.items():
            setattr(twin, name, None if child is None else twins[child])
        for name, p in module._parameters.items():
            if p is None:
                twin._parameters[name] = None
            else:
                setattr(twin, name, p * factor)
        for name, b in module._buffers.items():
            twin._buffers[name] = None if b is None else b.clone()
    return twins[model]


@condition("replicas of `nn.DataParallel`")
def data_parallel(model, patch):
    patch(model)
    ids, labels = batch()
    losses = [
        replica(model, factor)(input_ids=ids[i : i + 1], labels=labels[i : i + 1]).loss
        for i, factor in enumerate((1.0, 1.5))
    ]
    sum(losses).backward()
    return gradients(model) | {"losses": torch.stack(losses).detach()}


# copies and files


def enlarged(model):
    with torch.no_grad():
        for p in model.parameters():
            p *= 1.5
    return model


@condition("`copy.deepcopy`, trained on by itself")
def deep_copy(model, patch):
    patch(model)
    twin = enlarged(copy.deepcopy(model))
    return step(twin) | {f"original: {n}": t for n, t in step(model).items()}


@condition("`copy.copy` of modules, with other weights")
def shallow_copy(model, patch):
    patch(model)
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if child in parts(model)["norm"] or type(child).__name__.endswith("MLP"):
                twin = copy.copy(child)
                twin._parameters = {n: p if p is None else nn.Parameter(1.5 * p)
                                    for n, p in child._parameters.items()}  # fmt: skip
                setattr(module, name, twin)
    return step(model)


@condition("`pickle` and `torch.save` of the model")
def pickled(model, patch):
    patch(model)
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    found = step(pickle.loads(pickle.dumps(model)))
    return found | {f"saved: {n}": t for n, t in
                    step(torch.load(file, weights_only=False)).items()}  # fmt: skip


@condition("`save_pretrained` and `from_pretrained`")
def saved(model, patch):
    patch(model)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        twin = type(model).from_pretrained(folder, dtype=torch.float64).train()
    _eager_experts(twin)
    patch(twin)
    return step(twin)


@condition("`unpatch`, and `patch` again")
def unpatched(model, patch):
    results = {}
    for _ in range(2):
        if patch(model):
            kw.unpatch(model)
        results |= step(model)
    patch(model)
    return {**results, **{f"again: {n}": t for n, t in step(model).items()}}


@condition("Accelerate's hooks around forwards, then `unpatch`")
def accelerate_hooks(model, patch):
    from accelerate.hooks import ModelHook, add_hook_to_module, remove_hook_from_module

    class Doubles(ModelHook):
        def post_forward(self, module, output):
            return changed(output)

    done = patch(model)
    for module in (*parts(model)["norm"], *parts(model)["block"]):
        add_hook_to_module(module, Doubles())
    results = step(model)
    if done:
        kw.unpatch(model)
    results |= {f"unpatched: {n}": t for n, t in step(model).items()}
    remove_hook_from_module(model, recurse=True)
    return results | {f"removed: {n}": t for n, t in step(model).items()}


@condition("`generate`, with a cache and without")
def generated(model, patch):
    patch(model.eval())
    ids, _ = batch(5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {str(cache): model.generate(ids, max_new_tokens=6, do_sample=False, use_cache=cache)
                for cache in (True, False)}  # fmt: skip


# the comparison


def differences(name: str, family: str) -> list[str]:
    """What differs between an unpatched and a patched model under a condition."""
    of = CONDITIONS[name]
    want, found = (attempt(of, family, p) for p in (lambda model: None, quietly))
    if isinstance(found, Exception):
        expected = of.fails or of.refuses
        right = expected is not None and isinstance(found, expected)
        return (
            [] if right and isinstance(want, Exception) == (of.fails is not None) else [repr(found)]
        )
    if isinstance(want, Exception):
        return [f"unpatched: {want!r}"]
    if of.fails or of.refuses:
        return [f"no {of.fails or of.refuses} is raised"]
    wrong = [f"{n}: only in one" for n in want.keys() ^ found.keys()]
    for key in want.keys() & found.keys():
        a, b = want[key], found[key]
        # a fused loss is returned in float32, as transformers asks of logits
        within = max(of.within, ROUNDED) if "loss" in key else of.within
        if a.shape != b.shape or (a.dtype != b.dtype and "loss" not in key):
            wrong.append(f"{key}: {b.shape}, {b.dtype}; unpatched {a.shape}, {a.dtype}")
        elif (off := distance(a, b)) > within:
            wrong.append(f"{key}: off by {off:.2g}")
    return wrong


def distance(a, b) -> float:
    if not a.numel():
        return 0.0
    a, b = a.double(), b.double()
    return float((a - b).abs().max() / a.abs().max().clamp(min=1e-6))


def attempt(of: Condition, family: str, patch):
    model = make(family, torch.float64, **of.options)
    _eager_experts(model)
    exact = InFloat64() if of.within == EXACT else contextlib.nullcontext()
    try:
        with exact:
            return of.run(model, patch)
    except (RuntimeError, TypeError, ValueError, AttributeError, AssertionError) as e:
        return e


def _eager_experts(model):
    """transformers' other implementations do not support float64."""
    if hasattr(model.config, "num_local_experts"):
        model.set_experts_implementation("eager")


def quietly(model):
    """`kw.patch`, which tries replacements in float32."""
    active = torch._C._len_torch_function_stack() > 0
    outside = torch.overrides._pop_mode_temporarily() if active else contextlib.nullcontext()
    with outside:
        report = kw.patch(model)
    left = [x.module for x in report.lines if not x.by and x.module != "GPT2Attention"]
    adapters = any(parametrize.is_parametrized(m) or isinstance(m, LoRA) for m in model.modules())
    assert adapters or not left, report  # otherwise nothing is compared
    return True


def conditions_table() -> str:
    """docs/patch.md's table of conditions."""
    lines = ["| around the model | the patched model |", "| --- | --- |"]
    for of in CONDITIONS.values():
        result = "the same numbers"
        if of.fails:
            result = f"the same error, `{of.fails.__name__}`"
        if of.refuses:
            result = f"refused: `{of.refuses.__name__}`"
        if of.within == BF16:
            result = "the same up to rounding"
        lines.append(f"| {of.what} | {result} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(conditions_table())
