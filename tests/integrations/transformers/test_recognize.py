"""kw.patch recognizes a function by its code and its callees', and tests replacements."""

import ast
import importlib
import inspect
import re
from collections import defaultdict
from pathlib import Path

import pytest
import torch
import transformers
from transformers.models.gemma import modeling_gemma

import kernelwright as kw
from kernelwright.integrations.transformers import code, equivalence, recognize, ropes
from support.patched_models import make
from support.small_models import blt, logits, nanochat
from tools import patch_families

pytestmark = pytest.mark.usefixtures("few_threads")
WIDE = equivalence.WIDE
LLAMAS = "llama.apply_rotary_pos_emb"


@pytest.fixture(autouse=True)
def nothing_tried(monkeypatch):
    monkeypatch.setattr(equivalence, "_seen", {})


# --- by code -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("model", "attention"), [(nanochat, "NanoChat"), (blt, "BltSelf")])
def test_a_helper_of_the_same_name_and_other_code_keeps_the_logits(model, attention):
    model = model()
    want = logits(model)
    report = kw.patch(model)
    why = {line.module: line.why for line in report.lines if not line.by}
    assert why[f"{attention}Attention"] == (
        "its apply_rotary_pos_emb calls another rotate_half than Llama's"
    )
    assert "rope" not in {line.what for line in report.replaced}
    torch.testing.assert_close(logits(model), want)


def test_heads_elsewhere_are_named():
    config = transformers.PixtralVisionConfig(
        hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=4,
        image_size=8, patch_size=4,
    )  # fmt: skip
    model = transformers.PixtralVisionModel(config).eval()
    image = torch.randn(1, 3, 8, 8)
    want = model(image).last_hidden_state
    report = kw.patch(model)
    assert "its heads are at unsqueeze_dim=0" in str(report)
    torch.testing.assert_close(model(image).last_hidden_state, want)


def helper(x):
    return x + 1


def calls(x, *, by=2):
    return [helper(x) for _ in range(by)]


def rebuilt(globals=None, **changes):
    """`calls` with other globals, or with another change."""
    made = type(calls)(calls.__code__, {**calls.__globals__, **(globals or {})})
    made.__kwdefaults__ = changes.get("defaults", calls.__kwdefaults__)
    return made


def test_what_a_function_reads_is_part_of_its_code():
    def other(x):
        return x + 2

    def same(x):
        """But for this."""
        return x + 1

    own = code.essence(calls)
    assert code.difference(own, code.essence(rebuilt())) is None
    assert code.difference(own, code.essence(rebuilt({"helper": same}))) is None
    assert code.difference(own, code.essence(rebuilt({"helper": other}))) == "helper"
    assert code.difference(own, code.essence(rebuilt({"range": reversed}))) == "range"
    assert code.difference(own, code.essence(rebuilt(defaults={"by": 3}))) == ""
    assert code.difference(own, code.essence(helper)) == ""
    assert code.difference(own, None) == ""


def test_a_method_of_other_code_behind_the_same_forward(monkeypatch):
    class Norm(modeling_gemma.GemmaRMSNorm):
        def _norm(self, x):
            return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True)) + self.eps

    own = code.essence(Norm.forward, Norm)
    assert code.difference(own, recognize._reference("gemma.GemmaRMSNorm")) == "._norm"
    model = make("Gemma")
    model.model.norm.__class__ = Norm
    assert "1 x Norm" in str(kw.patch(model))


# --- every file of transformers ----------------------------------------------------------------


MODELING = sorted((Path(transformers.__file__).parent / "models").glob("*/modeling_*.py"))


def file_of(family):
    return next(p for p in MODELING if p.stem == f"modeling_{family}")


def blocks(path, names):
    """Top-level functions and classes of a file whose names match, as syntax trees by name."""
    for block in re.split(r"^(?=def |class )", path.read_text(), flags=re.M):
        found = re.match(rf"(?:def|class) ({names})\b", block)
        if found:
            block = re.split(r"^(?=[^\s)])", block, flags=re.M)[1]  # up to the code after it
            yield found[1], ast.parse(block).body[0]


def body(tree):
    """The code of a function or class as text, without docstrings, messages and annotations."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            node.decorator_list, node.name = [], "_"
            if isinstance(node.body[0], ast.Expr) and len(node.body) > 1:
                node.body = node.body[1:]
        if isinstance(node, ast.FunctionDef):
            node.returns = None
        if isinstance(node, ast.arg):
            node.annotation = None
    return ast.dump(tree)


def test_every_apply_rotary_pos_emb_is_refused_or_equal():
    """One file for each distinct pair of code in transformers under these two names."""
    groups = defaultdict(list)
    for path in MODELING:
        found = {n: body(tree) for n, tree in blocks(path, "apply_rotary_pos_emb|rotate_half")}
        if "apply_rotary_pos_emb" in found:
            groups[tuple(sorted(found.items()))].append(path.stem)
    assert len(groups) > 20
    reference, recognized = recognize._reference(LLAMAS), []
    for stems in groups.values():
        name = f"transformers.models.{stems[0].removeprefix('modeling_')}.{stems[0]}"
        rope = importlib.import_module(name).apply_rotary_pos_emb
        if code.difference(code.essence(rope), reference) is None:
            recognized += stems
            q, k = torch.randn(2, 4, 3, 8), torch.randn(2, 2, 3, 8)
            cos, sin = (torch.randn(2, 3, 4).repeat(1, 1, 2) for _ in range(2))
            torch.testing.assert_close(kw.rope(q, k, cos, sin), rope(q, k, cos, sin))
    assert len(recognized) > 90
    assert {"modeling_llama", "modeling_qwen3", "modeling_gemma3"} <= set(recognized)
    assert not {"modeling_nanochat", "modeling_blt", "modeling_cohere"} & set(recognized)


def test_tables_of_angles_have_each_value_twice():
    """For the families whose rope is recognized, because kw.rope reads half of a table."""
    ropes = "apply_rotary_pos_emb|rotate_half"
    own = {name: body(tree) for name, tree in blocks(file_of("llama"), ropes)}
    twice = re.compile(r"torch\.cat\((?:\((\w+), \1\)|\[(\w+), \2\]), dim=-1\)")
    without = [
        path.stem
        for path in MODELING
        if {name: body(tree) for name, tree in blocks(path, ropes)} == own
        and re.search(r"^class \w*Rotary\w*Emb", path.read_text(), re.M)
        and not twice.search(path.read_text())
    ]
    assert without == []


TWICE = {  # how a table gets each angle twice
    "halves": r"torch\.cat\((?:\((\w+), \1\)|\[(\w+), \2\]), dim=-1\)|\.repeat\(1, 2\)",
    "neighbours": r"repeat_interleave\((?:\w+, )?(?:repeats=)?2, (?:dim=)?-1\)",
}


@pytest.mark.long
def test_tables_of_every_known_rope_have_each_value_twice():
    """As above, for every known function, because ours reads half of a table."""
    checked, without = 0, []
    for family, cls in patch_families.classes():
        text = Path(importlib.import_module(cls.__module__).__file__).read_text()
        for rope in recognize._rotations(cls).values():
            kind = recognize._rope_of(rope)
            if kind and kind.tables in TWICE and ".cos()" in text:
                checked += 1
                if not re.search(TWICE[kind.tables], text):
                    without.append((family, cls.__name__))
    assert without == [] and checked > 150


@pytest.mark.long
def test_the_page_of_families():
    """For the version of transformers that the page states."""
    text = patch_families.PAGE.read_text()
    (version,) = re.findall(r"from transformers\s+([\w.]+\w)\.", text)
    if version != transformers.__version__:
        pytest.skip(f"transformers {version} is not installed")
    assert text == patch_families.page()


@pytest.mark.parametrize("name", ropes.ROPES)
def test_ropes_do_what_they_stand_for(name):
    """For each kind of arguments; if a table has a row per head, the original function runs."""
    family, _, function = name.rpartition(".")
    path = f"transformers.models.{family}.modeling_{family}"
    own, kind = getattr(importlib.import_module(path), function), ropes.ROPES[name]
    ours, tried = kind.replaces(own), 0
    for _, args, more in equivalence._rotated(kind):
        torch.testing.assert_close(ours(*args, **more), own(*args, **more))
        tried += 1
    assert tried
    if kind.arguments != "q and k":
        return
    # ours does not support a row per head, so the original runs
    q, k, (cos, sin) = *torch.randn(2, 2, 4, 3, WIDE), torch.randn(2, 4, 3, args[2].shape[-1])
    given = (q, k, cos, sin)
    torch.testing.assert_close(ours(*given, unsqueeze_dim=0), own(*given, unsqueeze_dim=0))


def test_a_missing_family_is_no_reference(monkeypatch):
    """A family may be missing in another version of transformers."""
    recognize._reference.cache_clear()
    assert recognize._reference("llama.NoSuchNorm") is None
    assert recognize._reference("no_such_family.Norm") is None


REFERENCES = {  # a module of each known class, and a pattern of its kind's names in other files
    "llama.LlamaRMSNorm": (lambda: make().model.norm, "RMSNorm"),
    "gemma.GemmaRMSNorm": (lambda: make("Gemma").model.norm, "RMSNorm"),
    "llama.LlamaMLP": (lambda: make().model.layers[0].mlp, "MLP"),
    "gpt2.GPT2MLP": (lambda: make("GPT-2").transformer.h[0].mlp, "MLP"),
    "llama.LlamaDecoderLayer": (lambda: make().model.layers[0], "DecoderLayer|Block"),
    "gemma2.Gemma2DecoderLayer": (lambda: make("Gemma 2").model.layers[0], "DecoderLayer|Block"),
    "gpt2.GPT2Block": (lambda: make("GPT-2").transformer.h[0], "DecoderLayer|Block"),
    "olmo2.Olmo2RMSNorm": (lambda: make("OLMo 2").model.norm, "RMSNorm"),
    "gemma4.Gemma4RMSNorm": (lambda: make("Gemma 4").model.norm, "RMSNorm"),
    "llama4.Llama4TextRMSNorm": (lambda: make("Llama 4").model.norm, "RMSNorm"),
    "nemotron.NemotronLayerNorm1P": (lambda: make("Nemotron").model.norm, "LayerNorm1P"),
    "cohere.CohereLayerNorm": (lambda: make("Cohere").model.norm, "LayerNorm"),
    "olmo.OlmoLayerNorm": (lambda: make("OLMo").model.norm, "LayerNorm"),
    "phi3.Phi3MLP": (lambda: make("Phi 3").model.layers[0].mlp, "MLP"),
    "nemotron.NemotronMLP": (lambda: make("Nemotron").model.layers[0].mlp, "MLP"),
    "deepseek_v4.DeepseekV4MLP": (
        lambda: make("DeepSeek V4").model.layers[0].mlp.shared_experts,
        "MLP",
    ),
    "phi3.Phi3DecoderLayer": (lambda: make("Phi 3").model.layers[0], "DecoderLayer"),
    "glm4.Glm4DecoderLayer": (lambda: make("GLM 4").model.layers[0], "DecoderLayer"),
    "granite.GraniteDecoderLayer": (lambda: make("Granite").model.layers[0], "DecoderLayer"),
    "nemotron.NemotronDecoderLayer": (lambda: make("Nemotron").model.layers[0], "DecoderLayer"),
}


@pytest.mark.parametrize("reference", REFERENCES)
def test_every_class_of_a_known_forward_is_refused_or_equal(reference):
    """One class for each distinct code among classes with the same forward."""
    module, kind = REFERENCES[reference]
    module = module()
    family, _, name = reference.rpartition(".")
    own = forward_of(dict(blocks(file_of(family), name))[name])
    groups = defaultdict(list)
    for path in MODELING:
        for cls, tree in blocks(path, rf"\w*(?:{kind})"):
            if forward_of(tree) == own:
                groups[methods(tree)].append((path.stem, cls))
    taken = 0
    for (stem, cls), *_ in groups.values():
        path = f"transformers.models.{stem.removeprefix('modeling_')}.{stem}"
        module.__class__ = getattr(importlib.import_module(path), cls)
        new = recognize.replacement(module)
        if isinstance(new, recognize.Replacement):
            taken += 1
            assert equal(module, new), (cls, new)
    assert taken


def forward_of(tree):
    return next((body(n) for n in tree.body if getattr(n, "name", "") == "forward"), None)


def methods(tree):
    """Everything that a class defines, except __init__ and forward."""
    rest = (n for n in tree.body if getattr(n, "name", "") not in ("", "__init__", "forward"))
    return tuple(body(n) for n in rest)


def equal(module, new):
    """Whether a module computes the same with and without the replacement."""
    torch.manual_seed(1)
    if new.what == "residual":
        tables = tuple(torch.randn(1, 5, 4).repeat(1, 1, 2) for _ in range(2))
        named = inspect.signature(module.forward).parameters
        more = {"position_embeddings": tables} if "position_embeddings" in named else {}
        x = torch.randn(2, 5, 32)

        def run():
            return module.forward(x, **more)
    else:
        x = torch.randn(2, 5, 32)

        def run():
            return module.forward(x)

    with torch.no_grad():
        want = run()
        for child, forward in new.forwards.items():
            module.get_submodule(child).forward = forward.__get__(module.get_submodule(child))
        found = run()
        for child in new.forwards:
            del module.get_submodule(child).forward
    return torch.allclose(want, found, 1e-4, 1e-5)
