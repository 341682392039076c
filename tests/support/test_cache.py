"""The kernel cache: building once, damaged entries, waiting processes, unusable disks."""

import errno
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from kernelwright import cli, emulator, toolchain
from kernelwright.contract import CudaKernel
from kernelwright.emulator import build as emulated
from kernelwright.emulator import launch
from kernelwright.support import cache
from kernelwright.support.errors import CompileError, NoSpace, ToolchainError
from kernelwright.toolchain import c_extensions, nvrtc
from kernelwright.workbench.verify import cuda_kernels
from support.planning import CUDA_SOURCE, own_cache, scale_cu  # noqa: F401

SOURCE = Path(toolchain.__file__).parents[2]
KEY = cache.key(["source", b"flags"])
FILES = {"a": b"1" * 100, "b": b"2" * 100}
can_emulate = pytest.mark.skipif(emulator.missing() is not None, reason=str(emulator.missing()))


def made(files=FILES, built=None):
    """An entry's files, built if they are missing; `built` counts the builds."""

    def build(work):
        assert list(work.iterdir()) == []
        (work / "scratch").write_text("what a compiler leaves")
        if built is not None:
            built["times"] += 1
        return files

    return cache.read(cache.get_or_build("kind", KEY, "building", build))


def left(cached):
    return list((cached / "building").iterdir())


def never(work):
    raise AssertionError("it is there already")


# --- entries -----------------------------------------------------------------------------------


def test_an_entry_is_built_once(cached):
    built = Counter()
    assert cache.find("kind", KEY) is None
    assert made(built=built) == FILES
    assert made({"a": b"another"}, built) == FILES
    assert built["times"] == 1 and not left(cached)
    assert stat.S_IMODE(cached.stat().st_mode) == 0o700


def test_put_replaces_an_entry(cached):
    made()
    cache.put("kind", KEY, {"a": b"new"})
    assert cache.read(cache.find("kind", KEY)) == {"a": b"new"} and not left(cached)


def test_a_build_that_fails_leaves_nothing(cached):
    def fails(work):
        (work / "half").write_text("")
        raise CompileError("refused")

    for _ in range(2):
        with pytest.raises(CompileError, match="refused"):
            cache.get_or_build("kind", KEY, "building", fails)
    assert not left(cached) and made() == FILES


def test_parts_of_a_key_are_separated():
    assert cache.key(["ab", "c"]) != cache.key(["a", "bc"])


def test_a_folder_that_others_may_write_to_is_refused(cached):
    cached.mkdir(mode=0o700)
    cached.chmod(0o770)
    with pytest.raises(ToolchainError, match="writable by others"):
        cache.root()


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to give a folder away")
def test_a_folder_of_somebody_else_is_refused(cached):
    cached.mkdir(mode=0o700)
    os.chown(cached, 12345, -1)
    with pytest.raises(ToolchainError, match="belongs to another user"):
        cache.root()


def test_a_folder_that_cannot_be_made_names_the_variable(cached):
    cached.parent.mkdir(exist_ok=True)
    cached.write_text("a file")
    with pytest.raises(ToolchainError, match="KW_CACHE"):
        cache.root()


# --- damage ------------------------------------------------------------------------------------


def truncated(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def emptied(path):
    path.write_bytes(b"")


def overwritten(path):
    path.write_bytes(b"x" * path.stat().st_size)


def removed(path):
    path.unlink()


@pytest.mark.parametrize("damage", [truncated, emptied, overwritten, removed])
@pytest.mark.parametrize("file", ["a", cache.SUMS])
def test_what_is_damaged_is_built_again(cached, file, damage):
    built = Counter()
    made(built=built)
    damage(cache.path("kind", KEY) / file)
    assert cache.find("kind", KEY) is None
    assert made(built=built) == FILES == made(built=built)
    assert built["times"] == 2 and not left(cached)


def test_a_folder_without_checksums_or_a_file_in_its_place_is_built_again(cached):
    folder = cache.path("kind", KEY)
    folder.mkdir(parents=True)
    (folder / "a").write_bytes(FILES["a"])
    assert made() == FILES
    shutil.rmtree(folder)
    folder.write_text("")
    assert made() == FILES


def test_a_file_is_read_again_only_where_it_looks_different(cached, monkeypatch):
    made()
    assert cache.find("kind", KEY)
    monkeypatch.setattr(cache, "_sums", None)  # calling it would fail
    assert cache.find("kind", KEY)


def damage_all(cached, kind, damage):
    """Damage every file of a kind's entries; returns how many."""
    files = [p for p in (cached / kind).rglob("*") if p.is_file() and p.name != cache.SUMS]
    for path in files:
        damage(path)
    return len(files)


@pytest.mark.parametrize("damage", [truncated, overwritten])
def test_nvrtcs_kernels_are_built_again(cached, cuda_source, damage):
    kernel = CudaKernel(cuda_source, "scale<float>")
    first = nvrtc.compile(kernel, "sm_90a").cubin
    assert damage_all(cached, "cuda", damage)
    assert nvrtc.compile(kernel, "sm_90a").cubin == first
    assert cache.find("cuda", next((cached / "cuda").glob("*/*")).name)


@pytest.mark.parametrize("damage", [truncated, pytest.param(overwritten, marks=pytest.mark.long)])
def test_tritons_kernels_are_built_again(cached, damage):
    pytest.importorskip("triton")
    code = (
        "import kernelwright.ops.every; from kernelwright import dispatch;"
        "from kernelwright.toolchain import modes;"
        "modes.compile_only();"
        "from kernelwright.workbench.inspection import inspect;"
        "(i,) = inspect(dispatch.ladder('softmax'), 'triton_row', arch='sm_90a');"
        "print(i.ptx, i.ttgir)"
    )
    home = cached.parent / "home"
    first = python(code, HOME=str(home))
    assert damage_all(cached, "triton", damage) == 4
    assert python(code, HOME=str(home)) == first
    assert not (home / ".triton").exists() and not left(cached)


@can_emulate
@pytest.mark.parametrize("damage", [truncated, overwritten])
@pytest.mark.parametrize("of_note", [False, True], ids=["library", "note"])
def test_emulated_kernels_are_built_again(cuda_source, of_note, damage):
    kernel = CudaKernel(cuda_source, "scale<float>")
    library, number = emulated.library_of(kernel, "fast")
    note = cache.path("emulated-note", emulated._note_key(kernel, "fast")) / "at"
    damage(note if of_note else library)
    assert emulated._note(kernel, "fast") is None
    assert emulated.library_of(kernel, "fast") == (library, number)
    assert launch.load(kernel).kinds == ("pointer", "pointer", "i64", "f32")


@pytest.mark.skipif(c_extensions.compiler() is None, reason="no C compiler")
@pytest.mark.parametrize("damage", [truncated, overwritten])
def test_extensions_are_built_again(cached, damage):
    path = c_extensions._built("tensor_lists")
    whole = path.read_bytes()
    damage(path)
    assert c_extensions._built("tensor_lists") == path and path.read_bytes() == whole


def python(code, *arguments, **environment):
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(SOURCE), **environment},
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


# --- several processes -------------------------------------------------------------------------


def test_one_process_builds_and_the_others_wait(cached):
    built, begun = Counter(), threading.Event()

    def build(work):
        built["times"] += 1
        begun.set()
        # let the others begin; if they did not wait, they would build too
        threading.Event().wait(0.2)
        return FILES

    def ask(first):
        if not first:
            begun.wait()
        return cache.read(cache.get_or_build("kind", KEY, "building", build))

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(ask, [True, False, False, False])) == [FILES] * 4
    assert built["times"] == 1 and not left(cached)


BUILDS_FOR_EVER = """
import sys, time
from kernelwright.support import cache

def build(work):
    (work / "half").write_text("half")
    print("begun", flush=True)
    time.sleep(1000)

cache.get_or_build("kind", sys.argv[1], "building", build)
"""


@pytest.fixture
def killed(cached):
    """`killed(key)` kills a process while it builds an entry."""

    def kill(key):
        command = [sys.executable, "-c", BUILDS_FOR_EVER, key]
        environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as process:
            assert process.stdout.readline() == b"begun\n"
            process.send_signal(signal.SIGKILL)
        assert left(cached)

    return kill


def test_a_killed_build_blocks_no_other_process(cached, killed):
    killed(KEY)
    built = Counter()
    assert made(built=built) == FILES and built["times"] == 1
    assert not left(cached)


def test_what_killed_builds_left_of_other_entries_is_removed(cached, killed):
    killed(KEY)
    killed(cache.key(["another"]))
    assert len(left(cached)) == 2  # the second has removed the first's
    cache.put("kind", cache.key(["a third"]), FILES)
    assert not left(cached)


def test_a_build_under_way_is_not_swept(cached):
    def build(work):
        cache.put("kind", cache.key(["another"]), FILES)
        assert work.is_dir() and len(left(cached)) == 2
        return FILES

    cache.get_or_build("kind", KEY, "building", build)
    assert not left(cached)


def test_a_process_has_a_folder_until_it_ends(cached):
    code = "from kernelwright.support import cache; print(cache.of_process().is_dir())"
    kill = "; import os; os.kill(os.getpid(), 9)"
    assert python(code) == "True\n" and not left(cached)
    subprocess.run(
        [sys.executable, "-c", code + kill],
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        stdout=subprocess.DEVNULL,
    )
    assert left(cached)
    made()
    assert not left(cached)


# --- unusable disks ----------------------------------------------------------------------------


def full(*_, **__):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_is_named(cached, monkeypatch):
    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(NoSpace) as caught:
        made()
    monkeypatch.undo()
    disk = next(p for p in cached.parents if p.is_mount())
    assert str(cached.parent) in str(caught.value)
    assert f"no space is left on the disk mounted on {disk} (" in str(caught.value)
    assert "set KW_CACHE" in str(caught.value)


def test_a_compilers_full_disk_is_named_too(cached):
    def refuse(work):
        raise CompileError("as: can't write 64 bytes to unit.o: No space left on device")

    with pytest.raises(NoSpace, match="no space is left on the disk mounted on "):
        cache.get_or_build("kind", KEY, "building", refuse)


def test_a_full_disk_that_has_no_folder_yet(cached, monkeypatch):
    monkeypatch.setattr(Path, "mkdir", full)
    with pytest.raises(NoSpace, match="no space is left"):
        made()


@can_emulate
@pytest.mark.parametrize(
    "command",
    [
        ("verify", "sum.cuda_rows"),
        ("verify", "sum.cuda_rows", "--check", "bounds", "--seed", "1"),
        ("bench", "sum", "--quick", "--case", "1048576-f32-dim=None"),
        ("dissect", "sum.cuda_rows"),
        ("inspect", "sum.cuda_rows"),
    ],
    ids=lambda c: " ".join(c[:1] + c[2:3]),
)
def test_a_command_stops_at_a_full_disk(cached, command, monkeypatch, capfd):
    if "--check" in command and torch.cuda.is_available():
        pytest.skip("compute-sanitizer answers on a GPU")
    asked = []

    def refuse(target, aside, build):
        asked.append(target)
        full()

    for f in (cuda_kernels.refusal, emulated.runtime, emulated.prelude):
        monkeypatch.setattr(sys.modules[f.__module__], f.__name__, f.__wrapped__)
    monkeypatch.setattr(cache, "_built", refuse)
    with pytest.raises(SystemExit) as stopped:
        cli.main(list(command))
    assert stopped.value.code == 3 and len(asked) == 1
    said = capfd.readouterr().err.strip().splitlines()[-1]
    assert said.startswith("kernelwright: nothing can be built in ") and "no space is left" in said


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """The parent of temporary folders."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    cache._temporary.cache_clear()
    yield folder
    cache._temporary.cache_clear()


def test_a_read_only_cache_is_read_and_not_written_to(cached, temporary, monkeypatch, capsys):
    made()
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != cached)
    before = sorted(cached.rglob("*"))
    assert cache.read(cache.get_or_build("kind", KEY, "building", never)) == FILES
    for name in ("another", "a third"):
        folder = cache.get_or_build("kind", cache.key([name]), "building", lambda _: FILES)
        assert folder.is_relative_to(temporary) and cache.read(folder) == FILES
    assert sorted(cached.rglob("*")) == before
    said = capsys.readouterr().err
    assert said.count("cannot be written to") == 1 and str(cached) in said and "KW_CACHE" in said


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES, errno.EPERM])
def test_a_cache_that_may_not_be_made_is_a_temporary_one(cached, temporary, monkeypatch, number):
    mkdir = Path.mkdir

    def refuse(path, *args, **kwargs):
        if path == cached:
            raise OSError(number, os.strerror(number))
        mkdir(path, *args, **kwargs)

    monkeypatch.setattr(Path, "mkdir", refuse)
    assert made() == FILES and not cached.exists()
    assert cache.path("kind", KEY).is_relative_to(temporary)


def test_a_temporary_cache_ends_with_its_process(cached, tmp_path):
    code = (
        "import os; os.access = lambda path, mode: False\n"
        "from kernelwright.support import cache; print(cache.root())"
    )
    folder = Path(python(code, TMPDIR=str(tmp_path)).strip())
    assert folder.parent == tmp_path and not folder.exists()


def test_neither_the_cache_nor_a_temporary_folder(cached, temporary, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    monkeypatch.setattr(tempfile, "mkdtemp", full)
    with pytest.raises(ToolchainError, match=r"neither .* can be written to"):
        cache.root()
