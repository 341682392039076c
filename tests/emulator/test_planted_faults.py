"""Faults planted by rules (tools/planted_faults): where, what the checks find, and the record."""

import json

import pytest
from tools.planted_faults.__main__ import counted, programs, rules_hash, sample
from tools.planted_faults.places import mutants
from tools.planted_faults.trials import build, trial

from kernelwright import emulator
from support.paths import FIXTURES, ROOT

RECORD = ROOT / "docs" / "planted_faults.json"
watched = pytest.mark.skipif(bool(emulator.missing("watched")), reason="nothing is watched here")

KERNEL = """
#define WAIT() __syncthreads();
__global__ void k(int *x) {
  __shared__ int s[32];
  s[threadIdx.x] = x[0];  // __syncthreads();
  __syncthreads();
  x[threadIdx.x] = s[31 - threadIdx.x];
}
int main() { cudaMemset(x, 0, 4); }
"""


def test_where_rules_apply():
    faults = [
        (m.rule.name, m.line, m.text.splitlines()[m.line - 1].strip()) for m in mutants(KERNEL)
    ]
    assert faults == [
        ("delete __syncthreads", 6, ";"),
        ("shared array one less", 4, "__shared__ int s[(32) - 1];"),
        ("no first store to shared memory", 5, ";  // __syncthreads();"),
        ("no cudaMemset", 9, "int main() { ; }"),
        ("barrier under a condition", 6,
         "{ if ((threadIdx.x + threadIdx.y) % 2) __syncthreads(); }"),
        ("two barriers of a branch", 6,
         "{ if ((threadIdx.x + threadIdx.y) % 2) __syncthreads(); else __syncthreads(); }"),
        ("one thread returns before a barrier", 6,
         "{ if (threadIdx.x == 5) return; __syncthreads(); }"),
    ]  # fmt: skip


@watched
@pytest.mark.parametrize(
    ("program", "rule", "said"),
    [
        ("wmma", "one lane ends before a product", "the lanes 0xffffffdf execute an instruction"),
        ("last_block_volatile", "delete a fence", "with no fence and atomic to order the blocks"),
    ],
)
def test_a_planted_fault_is_found(tmp_path, program, rule, said):
    file = tmp_path / f"{program}.cu"
    (tmp_path / "right.h").write_text((FIXTURES / "right" / "right.h").read_text())
    text = (FIXTURES / "right" / file.name).read_text()
    mutant = next(m for m in mutants(text) if m.rule.name == rule)
    assert said in (trial(file, mutant.text, ()).found or "")


def test_the_emulator_is_built_before_the_time_of_a_trial_begins(monkeypatch, tmp_path):
    kinds = []

    def prepare(kind):
        kinds.append(kind)
        raise InterruptedError  # before there is a process or a file

    monkeypatch.setattr(build, "prepare", prepare)
    with pytest.raises(InterruptedError):
        trial(tmp_path / "program.cu", KERNEL, ())
    assert kinds == ["watched"] and not list(tmp_path.iterdir())


def test_the_record_is_of_these_rules_and_programs():
    record = json.loads(RECORD.read_text())
    assert record["rules"] == rules_hash()
    assert record["classes"] == counted(record["mutants"])
    own = sample(programs(FIXTURES / "right"), record["seed"], record["each"])
    drawn = {(p.name, m.rule.name, m.line, m.column) for p, m in own}
    recorded = {
        (r["program"], r["rule"], r["line"], r["column"])
        for r in record["mutants"]
        if "@" not in r["program"]
    }
    assert drawn == recorded
