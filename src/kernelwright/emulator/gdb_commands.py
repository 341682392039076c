"""gdb commands for CUDA threads in the emulator, loaded by `kernelwright debug`.

threadIdx, blockIdx, blockDim and gridDim may be used in any expression, also in a breakpoint's
condition. The other commands begin with `cuda`; `help cuda` lists them.

The CUDA threads of a block are fibers of one OS thread: one runs, the others have saved their
registers on their stacks (context_switch.h). To inspect a waiting thread, its registers replace
those of the running thread until gdb resumes the program.
"""

from __future__ import annotations

import gdb  # pyright: ignore[reportMissingImports]

SAVED = ("r15", "r14", "r13", "r12", "rbx", "rbp", "rip")  # as kw_switch pushes them
MOVING = ("continue", "step", "next", "finish", "until", "advance", "stepi", "nexti", "run", "call")
THREAD = "((kw::emulator::Thread *)kw_current)"

_own: dict[str, int] = {}  # registers of the thread that runs, while another is looked at
_running = 0  # its Thread


class Cuda(gdb.Command):
    """CUDA threads of the emulator.

    cuda threads            where the threads of this block are
    cuda thread X [Y Z]     inspect another thread of this block, where it waits
    cuda back               return to the running thread (continuing does this automatically)
    cuda go X [Y Z]         run the program until thread X reaches the current line
    cuda where              which thread of which block this is
    cuda barriers           the phases of this block's barriers in shared memory
    cuda tile [ROW [COLUMN]]   D of the latest wgmma of this thread's warp group
    """

    def __init__(self) -> None:
        super().__init__("cuda", gdb.COMMAND_STACK, prefix=True)


class Command(gdb.Command):
    name = ""

    def __init__(self) -> None:
        super().__init__(f"cuda {self.name}", gdb.COMMAND_STACK)

    def invoke(self, argument: str, from_tty: bool) -> None:
        alive = gdb.selected_inferior().pid
        if not alive or not int(gdb.parse_and_eval("(long)kw_current")):
            raise gdb.GdbError("no kernel runs now: set a breakpoint in one and continue")
        self.act([int(n) for n in gdb.string_to_argv(argument)])

    def act(self, index: list[int]) -> None:
        raise NotImplementedError


class Where(Command):
    """Which thread of which block this is."""

    name = "where"

    def act(self, index: list[int]) -> None:
        print(place(thread()))


class Threads(Command):
    """Where the threads of this block are."""

    name = "threads"

    def act(self, index: list[int]) -> None:
        back()
        running = int(thread())
        block = thread()["block"].dereference()
        first, states = 0, []
        for i in range(int(block["count"])):
            states.append(state(block["threads"][i], running))
        for i in range(1, len(states) + 1):
            if i < len(states) and states[i] == states[first]:
                continue
            many = f"threads {first} to {i - 1}" if i - first > 1 else f"thread {first}"
            where = ""
            if states[first][1]:  # what gdb says of frames on the way is of no interest
                where = gdb.execute(f"kw-waits {first}", to_string=True).splitlines()[-1]
            print(f"{many}: {states[first][0]}{where}")
            first = i


class Look(Command):
    """Inspect another thread of this block: cuda thread X [Y Z]."""

    name = "thread"

    def act(self, index: list[int]) -> None:
        back()
        chosen = named(index)
        if int(chosen.address) != int(thread()):
            look(chosen)
        print(place(chosen.address))
        own_frame()
        gdb.execute("frame")


class Back(Command):
    """Return to the running thread."""

    name = "back"

    def act(self, index: list[int]) -> None:
        back()
        print(place(thread()))


class Barriers(Command):
    """The phases of this block's barriers in shared memory."""

    name = "barriers"

    def act(self, index: list[int]) -> None:
        print(call("kw_show_barriers"))


class Tile(Command):
    """D of the latest wgmma of this thread's warp group, from a row and column on:
    cuda tile [ROW [COLUMN]]."""

    name = "tile"

    def act(self, index: list[int]) -> None:
        row, column = (*index, 0, 0)[:2]
        print(call("kw_show_tile", row, column))


class Go(Command):
    """Run until a thread reaches the current line: cuda go X [Y Z]."""

    name = "go"

    def act(self, index: list[int]) -> None:
        back()
        x, y, z = (*index, 0, 0, 0)[:3]
        at = gdb.selected_frame().find_sal()
        condition = f"{THREAD}->index.x == {x} && {THREAD}->index.y == {y}"
        gdb.execute(
            f"tbreak {at.symtab.fullname()}:{at.line} if {condition} && {THREAD}->index.z == {z}"
        )
        gdb.execute("continue")


def thread() -> gdb.Value:
    return gdb.parse_and_eval(THREAD)


def call(function: str, *numbers: int) -> str:
    """The text that a function of the runtime returns."""
    address = int(gdb.parse_and_eval(f"(long)&{function}"))
    takes, given = ", ".join("int" for _ in numbers), ", ".join(map(str, numbers))
    return gdb.parse_and_eval(f"((const char *(*)({takes})){address})({given})").string()


def place(t: gdb.Value) -> str:
    def index(v: gdb.Value) -> str:
        return f"({int(v['x'])}, {int(v['y'])}, {int(v['z'])})"

    return f"thread {index(t['index'])} of block {index(t['block']['index'])}"


def named(index: list[int]) -> gdb.Value:
    block = thread()["block"].dereference()
    size = [int(block["size"][n]) for n in "xyz"]
    x, y, z = (*index, 0, 0, 0)[:3]
    if not index or x >= size[0] or y >= size[1] or z >= size[2]:
        raise gdb.GdbError(f"name a thread X [Y Z] of a block of {size[0]} x {size[1]} x {size[2]}")
    return block["threads"][x + size[0] * (y + size[1] * z)]


def state(t: gdb.Value, running: int) -> tuple[str, int]:
    """What a thread does, and where it waits."""
    if int(t.address) == running:
        return "runs", 0
    if int(t["wait"]):
        return "waits", int(t["where"])
    saved, stack = int(t["stack_pointer"]), int(t["stack"])
    return ("may go on", 0) if saved and stack else ("has not started, or has ended", 0)


def look(t: gdb.Value) -> None:
    """Replace the current registers by those of a waiting thread."""
    global _running
    if not int(t["stack_pointer"]) or not int(t["stack"]):
        raise gdb.GdbError(f"{place(t.address)} has not started, or has ended")
    gdb.newest_frame().select()
    _own.update({r: int(gdb.parse_and_eval(f"(long)${r}")) for r in (*SAVED, "rsp")})
    _running = int(thread())
    saved = int(t["stack_pointer"])
    word = gdb.lookup_type("long").pointer()
    values = [int(gdb.Value(saved + 8 * i).cast(word).dereference()) for i in range(len(SAVED))]
    put(dict(zip(SAVED, values, strict=True)) | {"rsp": saved + 8 * len(SAVED)}, int(t.address))


def back() -> None:
    """Give the registers back to the thread that runs."""
    if _own:
        gdb.newest_frame().select()
        put(dict(_own), _running)
        _own.clear()


def put(registers: dict[str, int], current: int) -> None:
    for name in ("rsp", *SAVED):
        gdb.execute(f"set ${name} = {registers[name]}", to_string=True)
    gdb.execute(f"set var kw_current = (kw::emulator::Thread *){current}", to_string=True)


def own_frame() -> None:
    """Select the innermost frame in the rung's own source or a header of kw."""
    frame = gdb.newest_frame()
    while frame is not None:
        at = frame.find_sal().symtab
        if at is not None and at.filename.endswith((".cu", ".cuh")):
            frame.select()
            return
        frame = frame.older()


class Leave(gdb.Command):
    """Runs before the program is resumed."""

    def __init__(self) -> None:
        super().__init__("kw-back", gdb.COMMAND_OBSCURE)

    def invoke(self, argument: str, from_tty: bool) -> None:
        back()


class Waits(gdb.Command):
    """The line where a thread waits: kw-waits NUMBER."""

    def __init__(self) -> None:
        super().__init__("kw-waits", gdb.COMMAND_OBSCURE)

    def invoke(self, argument: str, from_tty: bool) -> None:
        waiting = thread()["block"].dereference()["threads"][int(argument)]
        kind = str(waiting["wait"]).rpartition("::")[2].removeprefix("k")
        look(waiting)
        own_frame()
        at = gdb.selected_frame().find_sal()
        back()
        print(f" at {at.symtab.filename.rpartition('/')[2]}:{at.line} ({kind})")


class First(gdb.Breakpoint):
    """Stops where the first thread of a launch enters a kernel."""

    def stop(self) -> bool:
        t = thread().dereference()
        return not any(int(t["index"][n]) or int(t["block"]["index"][n]) for n in "xyz")


class Kernel(gdb.Command):
    """Stop in the first thread of each launch of a kernel: kw-kernel NAME."""

    def __init__(self) -> None:
        super().__init__("kw-kernel", gdb.COMMAND_BREAKPOINTS)

    def invoke(self, argument: str, from_tty: bool) -> None:
        First(argument)


Kernel()
if gdb.selected_inferior().architecture().name().startswith("i386:x86-64"):
    for command in (Cuda, Where, Threads, Look, Back, Barriers, Tile, Go, Leave, Waits):
        command()
    for moving in MOVING:
        gdb.execute(f"define hook-{moving}\nkw-back\nend")
else:
    print("the command cuda looks at other threads on x86-64 only")
for word, value in (
    ("threadIdx", "index"),
    ("blockIdx", "block->index"),
    ("blockDim", "block->size"),
    ("gridDim", "block->grid"),
):
    gdb.execute(f"macro define {word} ({THREAD}->{value})")
