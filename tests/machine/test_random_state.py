"""What runs in a user's process leaves the random state of the CPU and of every GPU as it was."""

import ast

import pytest
import torch
from torch import nn

import kernelwright as kw
from kernelwright.contract import Case
from kernelwright.dispatch import ladder
from kernelwright.integrations.transformers import equivalence
from kernelwright.machine import random_state
from kernelwright.support.errors import UserError
from kernelwright.support.settings import PACKAGE
from kernelwright.workbench.bench import bench, model_calls, tune, tune_model
from kernelwright.workbench.judge import judge
from kernelwright.workbench.judge.spec import subject_of
from kernelwright.workbench.verify import verify
from support.judging import FOLDER
from support.patched_models import make

GPU = torch.cuda.is_available()
#: Modules that seed or restore generators: those of the helpers, and training, whose seed it is.
SEEDING = {"machine/random_state.py", "train/trainer.py", "train/state.py"}
#: In processes of their own: `kernelwright profile`, and that of a judged kernel.
SEEDING |= {"workbench/profile/workload.py", "workbench/judge/sandbox/loading.py"}
#: Inputs of a KernelBench problem come from a seed, inside `preserved`.
SEEDING |= {"workbench/judge/formats.py"}


class TwoGpus:
    """The generators of two GPUs, each as a seed."""

    def __init__(self, monkeypatch):
        self.of = [3, 5]
        monkeypatch.setattr(random_state, "gpus", lambda: range(2))
        for name in ("manual_seed_all", "get_rng_state", "set_rng_state"):
            monkeypatch.setattr(torch.cuda, name, getattr(self, name))

    def manual_seed_all(self, seed):
        self.of = [seed, seed]

    def get_rng_state(self, device):
        return self.of[device]

    def set_rng_state(self, state, device):
        self.of[device] = state


@pytest.fixture
def states(monkeypatch):
    """A function that returns the states of the CPU's and of all GPUs' generators."""
    gpus = None if GPU else TwoGpus(monkeypatch)
    torch.manual_seed(11)

    def now():
        of_gpus = gpus.of if gpus else [s.tolist() for s in torch.cuda.get_rng_state_all()]
        return torch.get_rng_state().tolist(), list(of_gpus)

    return now


def draw(*_, **__):
    """Draws from the generator of every device and seeds them, as a user's code may."""
    torch.manual_seed(7)
    for device in ("cpu", *(f"cuda:{i}" for i in range(torch.cuda.device_count()))):
        torch.rand(3, device=device)
    raise UserError("drawn")


class Dropping(nn.Module):
    def forward(self, x):
        torch.manual_seed(7)
        return kw.dropout(x, 0.5)


@pytest.mark.parametrize(
    ("module", "name", "run"),
    [
        (verify, "verify_rung", lambda: verify.verify(["softmax.native"])),
        (bench, "launch_us", lambda: bench.bench([ladder("softmax")], quick=True)),
        (tune, "here", lambda: tune.tune(ladder("softmax"))),
        (judge, "launchable", lambda: judge.judge(f"{FOLDER / 'kernelbench.py'}:Model", "softmax")),
    ],
    ids=["verify", "bench", "tune", "judge"],
)
def test_states_are_those_of_before_whatever_a_command_runs(module, name, run, states, monkeypatch):
    monkeypatch.setattr(module, name, draw)
    before = states()
    with pytest.raises(UserError, match="drawn"):
        run()
    assert states() == before


def test_states_are_those_of_before_a_patch(states, monkeypatch):
    monkeypatch.setattr(equivalence, "_seen", {})
    model = make("Llama")
    torch.manual_seed(11)
    before = states()
    kw.patch(model)
    assert equivalence._seen  # on random inputs and layers
    assert states() == before


def test_states_are_those_of_before_a_model_is_tuned(states, monkeypatch):
    x = torch.ones(4, 8, device="cuda" if GPU else "cpu")
    before = states()
    model_calls.recorded(Dropping(), x)
    if GPU:
        monkeypatch.setattr(tune_model, "tuned", draw)
        with pytest.raises(UserError, match="drawn"):
            tune_model.tune(Dropping(), x)
    assert states() == before


@pytest.mark.parametrize("problem", ["kernelbench.py", "gpu_mode"])
def test_states_are_those_of_before_a_problem_of_another_collection(problem, states):
    before = states()
    operator = subject_of(FOLDER / problem).operator
    operator.reference(**operator.inputs(operator.cases[0], "cpu"))
    assert states() == before


def test_inputs_of_a_problem_come_from_its_seed():
    operator = subject_of(FOLDER / "kernelbench.py").operator
    first, second, other = (
        operator.inputs(Case((12, 96), torch.float32, seed=s), "cpu")["x0"] for s in (1, 1, 2)
    )
    assert torch.equal(first, second)
    assert not torch.equal(first, other)


def test_only_these_modules_seed_the_generators_of_a_process():
    """`torch.manual_seed` and `fork_rng` are easily called without some of the devices."""
    names = {"manual_seed", "manual_seed_all", "seed_all", "set_rng_state", "fork_rng"}
    seeding = set()
    for path in sorted(PACKAGE.rglob("*.py")):
        text = path.read_text()
        for node in ast.walk(ast.parse(text)) if any(name in text for name in names) else ():
            if isinstance(node, ast.Attribute) and node.attr in names:
                called = ast.unparse(node.value)
                if called in ("torch", "torch.random", "torch.cuda"):
                    seeding.add(str(path.relative_to(PACKAGE)))
    assert seeding == SEEDING
