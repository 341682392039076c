"""Exercises of practice: each solution is right, each fault is reported with its line, another
algorithm passes, and a wrong one fails with a message that states the reason."""

import re

import pytest

from kernelwright.support.errors import ToolchainError
from kernelwright.toolchain import availability
from kernelwright.workbench.exercise import check as checking
from kernelwright.workbench.exercise import exercise, files, watched
from kernelwright.workbench.exercise.practice import exercises as practice
from support.publics import DEVICE, strict

WRITE, FAULTS = ([e.id for e in found] for found in (practice.WRITE, practice.FAULTS))


def checked(name, folder, body=None, solved=False):
    """The outcome for the initial file, the solution, or a body in place of the initial one."""
    of = files.source(exercise.named(name))
    if missing := availability.missing(of.rung.backend, checking.here()):
        pytest.skip(missing)
    text = files.text(of, solved=solved)
    if body is not None:
        todo = r"  // TODO\n" if of.is_cuda else r"    # TODO\n    pass\n"
        text, count = re.subn(todo, lambda _: body.strip("\n") + "\n", text)
        assert count == 1
    path = folder / of.file_name
    path.write_text(text)
    return checking.check(of, path)


@pytest.mark.parametrize("name", WRITE)
def test_as_written_it_is_not_done(name, tmp_path):
    of = files.source(exercise.named(name))
    text = files.text(of)
    for task in of.exercise.tasks:
        assert files.body(of, of.path.read_text(), task.function).strip() not in text
    assert "Idea:" not in text and max(map(len, text.splitlines())) <= 100
    found = checked(name, tmp_path)
    assert found.outcome == "unfinished"
    assert found.why.startswith(f"not done yet: {of.exercise.tasks[0].function} ")


#: Solutions that `make test` takes through the whole check; `make test-all` takes every one.
WHOLE = ("row_sum.cuda_block", "vector_add.triton_block", "row_sum.numba_block")


@strict
@pytest.mark.parametrize(
    "name", [n if n in WHOLE else pytest.param(n, marks=pytest.mark.long) for n in WRITE + FAULTS]
)
def test_the_solution_is_right_and_meets_the_targets(name, tmp_path):
    found = checked(name, tmp_path, solved=True)
    of = files.source(exercise.named(name))
    assert found.outcome == "right" and found.passed >= 3, found
    assert not found.findings and (found.unchecked == "") == of.is_cuda
    assert [c.met for c in found.counts] == [True] * len(of.exercise.targets), found.counts


#: The check's message for each planted fault, and the text of the reported line.
SAID = {
    "fault.vector_add": ("bounds: ", "c[i] = a[i] + b[i]"),
    "fault.row_sum": ("divergence: ", "__syncthreads();"),
    "fault.histogram": ("init: ", "mine[b]"),
    "fault.prefix_sum": ("races: ", "sums[now]"),
    "fault.tile": ("bank conflicts", "tile[threadIdx.x][i]"),
}


@strict
@pytest.mark.parametrize("name", [
    n if n in ("fault.prefix_sum", "fault.tile") else pytest.param(n, marks=pytest.mark.long)
    for n in FAULTS
])  # fmt: skip
def test_a_planted_fault_is_named_with_its_line(name, tmp_path):
    found = checked(name, tmp_path)
    assert found.outcome == "wrong", found
    kind, text = SAID[name]
    of = files.source(exercise.named(name))
    if found.findings:
        said = next(f for f in found.findings if f.startswith(kind))
        line = int(re.search(rf"{of.file_name}:(\d+)", said)[1])
    else:
        (line,) = (c.line for c in found.counts if c.unit == kind and not c.met)
    assert text in files.text(of).splitlines()[line - 1]


#: Right with another algorithm: (exercise, body, the targets that it misses).
OTHERS = (
    ("vector_add.cuda_thread", """
  const long long step = (long long)gridDim.x * blockDim.x;
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step)
    c[i] = b[i] + a[i];
""", ()),
    ("row_sum.cuda_block", """
  if (threadIdx.x) return;
  float sum = 0.0f;
  for (int i = 0; i < columns; i++) sum += x[blockIdx.x * (long long)columns + i];
  y[blockIdx.x] = sum;
""", ("sectors of global memory per element",)),
    ("row_sum.cuda_block", """
  __shared__ float warps[8];
  float sum = 0.0f;
  for (int i = threadIdx.x; i < columns; i += 256) sum += x[blockIdx.x * (long long)columns + i];
  for (int d = 16; d; d /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, d);
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x) return;
  for (int w = 1; w < 8; w++) sum += warps[w];
  y[blockIdx.x] = sum;
""", ()),
    ("row_sum.numba_block", """
    if cuda.threadIdx.x == 0:
        total = float32(0.0)
        for i in range(columns):
            total += x[cuda.blockIdx.x * columns + i]
        y[cuda.blockIdx.x] = total
""", ()),
    ("transpose.cuda_tile", """
  const int column = blockIdx.x * 32 + threadIdx.x;
  for (int i = threadIdx.y; i < 32; i += 8) {
    const int row = blockIdx.y * 32 + i;
    if (row < rows && column < columns)
      y[(long long)column * rows + row] = x[(long long)row * columns + column];
  }
""", ("sectors of global memory per element",)),
    ("transpose.triton_tile", """
    row = tl.program_id(1).to(tl.int64) * SIDE + tl.arange(0, SIDE)
    for i in range(SIDE):
        column = tl.program_id(0).to(tl.int64) * SIDE + i
        inside = (row < rows) & (column < columns)
        x = tl.load(x_ptr + row * columns + column, mask=inside)
        tl.store(y_ptr + column * rows + row, x, mask=inside)
""", ()),
    ("matmul.cuda_shared", """
  const int row = blockIdx.y * 32 + threadIdx.y, column = blockIdx.x * 32 + threadIdx.x;
  if (row >= m || column >= n) return;
  float sum = 0.0f;
  for (int i = 0; i < k; i++) sum += a[row * lda + i] * b[i * ldb + column];
  c[(long long)row * n + column] = sum;
""", ("sectors of global memory per element",)),
    ("histogram.cuda_shared", """
  for (long long i = blockIdx.x * 256 + threadIdx.x; i < n; i += gridDim.x * 256)
    atomicAdd(&counts[x[i]], 1);
""", ("global atomics per element",)),
    ("prefix_sum.cuda_block", """
  if (threadIdx.x) return;
  float sum = 0.0f;
  for (long long i = blockIdx.x * (long long)columns, end = i + columns; i < end; i++)
    y[i] = sum += x[i];
""", ("sectors of global memory per element",)),
    ("layernorm.cuda_block", """
  x += blockIdx.x * (long long)columns, y += blockIdx.x * (long long)columns;
  float sum = 0, squares = 0;
  for (int i = 0; i < columns; i++) sum += x[i];
  const float mean = sum / columns;
  for (int i = 0; i < columns; i++) squares += (x[i] - mean) * (x[i] - mean);
  for (int i = threadIdx.x; i < columns; i += blockDim.x)
    y[i] = (x[i] - mean) / sqrtf(squares / columns + eps) * weight[i] + bias[i];
""", ("sectors of global memory per element",)),
    ("layernorm.cuda_block", """
  x += blockIdx.x * (long long)columns, y += blockIdx.x * (long long)columns;
  double sum = 0, squares = 0;
  for (int i = 0; i < columns; i++) sum += x[i], squares += (double)x[i] * x[i];
  const double mean = sum / columns, variance = squares / columns - mean * mean;
  for (int i = threadIdx.x; i < columns; i += blockDim.x)
    y[i] = (float)((x[i] - mean) / sqrt(variance + eps) * weight[i] + bias[i]);
""", ("sectors of global memory per element",)),
)  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize(("name", "body", "misses"), OTHERS, ids=[o[0] for o in OTHERS])
def test_another_algorithm_is_right(name, body, misses, tmp_path):
    found = checked(name, tmp_path, body)
    assert found.outcome == "right", found
    assert tuple(c.unit for c in found.counts if not c.met) == misses, found.counts


#: Wrong: (exercise, body, the check's message).
WRONG = (
    ("vector_add.numba_thread", """
    i = cuda.grid(1)
    c[i] = a[i] + b[i]
""", "line 14: IndexError"),
    ("vector_add.cuda_thread", """
  const int i = threadIdx.x;
  if (i < n) c[i] = a[i] + b[i];
""", "never written"),
    ("vector_add.triton_block", """
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(c_ptr + i, tl.load(a_ptr + i) + tl.load(b_ptr + i))
""", "written after its end" if DEVICE == "cuda" else "outside of its 1 element"),
    ("row_sum.numba_block", """
    sums = cuda.shared.array(THREADS, float32)
    tid = cuda.threadIdx.x
    sums[tid] = x[cuda.blockIdx.x * columns + tid] if tid < columns else 0.0
    cuda.syncthreads()
    if tid == 0:
        total = float32(0.0)
        for i in range(THREADS):
            total += sums[i]
        y[cuda.blockIdx.x] = total
""", "y: "),
    ("row_sum.cuda_block", """
  __shared__ float sum;
  sum = 0.0f;
  __syncthreads();
  for (int i = threadIdx.x; i < columns; i += 256) sum += x[blockIdx.x * (long long)columns + i];
  __syncthreads();
  if (threadIdx.x == 0) y[blockIdx.x] = sum;
""", "races: row_sum_cuda_block.cu:14: "),
    ("transpose.numba_tile", """
    row = cuda.blockIdx.y * SIDE + cuda.threadIdx.y
    column = cuda.blockIdx.x * SIDE + cuda.threadIdx.x
    if row < rows and column < columns:
        y[column * columns + row] = x[row * columns + column]
""", "out of bounds"),
    ("transpose.cuda_tile", """
  const int row = blockIdx.y * 32 + threadIdx.y, column = blockIdx.x * 32 + threadIdx.x;
  if (row < rows && column < columns) y[column * rows + row] = x[row * columns + column];
""", "never written"),
    ("transpose.triton_tile", """
    row = tl.program_id(1).to(tl.int64) * SIDE + tl.arange(0, SIDE)
    column = tl.program_id(0).to(tl.int64) * SIDE + tl.arange(0, SIDE)
    inside = (row < rows)[:, None] & (column < columns)[None, :]
    x = tl.load(x_ptr + row[:, None] * columns + column[None, :], mask=inside)
    tl.store(y_ptr + row[:, None] * columns + column[None, :], x, mask=inside)
""", "should be"),
    ("matmul.numba_tile", """
    row = cuda.blockIdx.y * TILE + cuda.threadIdx.y
    col = cuda.blockIdx.x * TILE + cuda.threadIdx.x
    if row < m and col < n:
        c[row * n + col] = a[row * lda] * b[col]
""", "c: "),
    ("matmul.cuda_shared", """
  __shared__ float tile[32][32];
  const int row = blockIdx.y * 32 + threadIdx.y, column = blockIdx.x * 32 + threadIdx.x;
  float sum = 0.0f;
  for (int first = 0; first < k; first += 32) {
    const int i = first + threadIdx.x;
    tile[threadIdx.y][threadIdx.x] = row < m && i < k ? a[row * lda + i] : 0.0f;
    __syncthreads();
    for (int j = 0; j < 32 && first + j < k; j++)
      if (column < n) sum += tile[threadIdx.y][j] * b[(first + j) * ldb + column];
  }
  if (row < m && column < n) c[(long long)row * n + column] = sum;
""", "races: matmul_cuda_shared.cu:"),
    ("histogram.cuda_shared", """
  for (long long i = blockIdx.x * 256 + threadIdx.x; i < n; i += gridDim.x * 256) counts[x[i]] += 1;
""", "races: histogram_cuda_shared.cu:"),
    ("prefix_sum.numba_block", """
    total = float32(0.0)
    if cuda.threadIdx.x == 0:
        for i in range(columns):
            y[cuda.blockIdx.x * columns + i] = total
            total += x[cuda.blockIdx.x * columns + i]
""", "should be"),
    ("prefix_sum.cuda_block", """
  __shared__ float sums[128];
  const int tid = threadIdx.x;
  sums[tid] = tid < columns ? x[blockIdx.x * columns + tid] : 0.0f;
  __syncthreads();
  for (int step = 1; step < 128; step *= 2) {
    const float before = tid >= step ? sums[tid - step] : 0.0f;
    __syncthreads();
    sums[tid] += before;
    __syncthreads();
  }
  if (tid < columns) y[blockIdx.x * columns + tid] = sums[tid];
""", "never written"),
    ("layernorm.numba_block", """
    start = cuda.blockIdx.x * columns
    total = squares = float32(0.0)
    for i in range(columns):
        total += x[start + i]
        squares += x[start + i] * x[start + i]
    mean = total / columns
    scale = 1 / math.sqrt(max(squares / columns - mean * mean, 0) + eps)
    for i in range(cuda.threadIdx.x, columns, THREADS):
        y[start + i] = (x[start + i] - mean) * scale * weight[i] + bias[i]
""", "value: y: "),
    ("layernorm.cuda_block", """
  x += blockIdx.x * (long long)columns, y += blockIdx.x * (long long)columns;
  float sum = 0, squares = 0;
  for (int i = 0; i < columns; i++) sum += x[i], squares += x[i] * x[i];
  const float mean = sum / columns, variance = squares / columns - mean * mean;
  for (int i = threadIdx.x; i < columns; i += blockDim.x)
    y[i] = (x[i] - mean) * rsqrtf(variance + eps) * weight[i] + bias[i];
""", "value: y: "),
    ("layernorm.triton_row", """
    start = tl.program_id(0).to(tl.int64) * columns
    column = tl.arange(0, COLUMNS)
    inside = column < columns
    x = tl.load(x_ptr + start + column, mask=inside, other=0.0)
    x -= tl.sum(x, axis=0) / columns
    rstd = tl.rsqrt(tl.sum(x * x, axis=0) / columns + eps)
    weight = tl.load(weight_ptr + column, mask=inside)
    bias = tl.load(bias_ptr + column, mask=inside)
    tl.store(y_ptr + start + column, x * rstd * weight + bias, mask=inside)
""", "should be"),
)  # fmt: skip


@strict
@pytest.mark.parametrize(("name", "body", "said"), [
    pytest.param(*w, id=w[0], marks=pytest.mark.long if ".cuda" in w[0] else ()) for w in WRONG
])  # fmt: skip
def test_a_wrong_one_is_told_what_is_wrong(name, body, said, tmp_path):
    found = checked(name, tmp_path, body)
    assert found.outcome in ("wrong", "error"), found
    assert said in "\n".join((found.why, found.where, *found.findings)), found


def test_set_up_builds_all_that_the_checks_share(monkeypatch):
    made = []
    monkeypatch.setattr(watched.emulator, "missing", lambda kind: None)
    monkeypatch.setattr(watched.build, "runtime", lambda: made.append("runtime"))
    monkeypatch.setattr(watched.build, "prelude", made.append)
    monkeypatch.setattr(watched.build, "observer", lambda folder: made.append(folder.name))
    watched.set_up()
    assert made[0] == "runtime"
    assert set(made[1:]) == {"fast", "watched", "dissected", "checks", "dissect"}


def test_set_up_says_what_is_missing(monkeypatch):
    monkeypatch.setattr(watched.emulator, "missing", lambda kind: f"no compiler for {kind}")
    with pytest.raises(ToolchainError, match="no compiler for watched"):
        watched.set_up()


def test_each_exercise_has_a_wrong_one_and_each_fault_a_line():
    assert [w[0] for w in WRONG] == WRITE
    assert set(SAID) == set(FAULTS)
