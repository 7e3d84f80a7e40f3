"""Saved stacks -> Stack: py-spy, faulthandler, gdb, torch's debug server, our own.

One file may hold many processes and all their threads; of each process its main thread is told,
or the one that crashed. Lines that belong to none of these are skipped.
"""

from __future__ import annotations

import re
import sys

import msgspec

from holdfast.analysis.scene import crash_file
from holdfast.analysis.scene.scene import Frame, Stack
from holdfast.explain.read.sanitize import plain

MOST_LINES = 400_000
MOST_FRAMES = 256
_LONGEST = 2_000
"""characters of a line that are looked at"""

_RANK = re.compile(r"=== Rank (\d{1,9}): (?:\w+://)?(\[[^\]\s]+\]|[^:/\s]+)\S* ===")
_PROCESS = re.compile(r"Process (\d{1,9}): ")
_ATTACHED = re.compile(r"Attaching to (?:program: .*, )?process (\d{1,9})")
_SPY_THREAD = re.compile(
    r'Thread (0x[0-9a-f]{1,16}|\d{1,20})(?: \((idle|active|active\+gil|gil)\))?(?:: "(.*)")?',
    re.IGNORECASE,
)
_SPY_FRAME = re.compile(r" {4}(\S.*?) \((.*?)(?::(\d{1,9}))?\)")
_FATAL = re.compile(r"Fatal Python error: (.+)")
_TIMEOUT = re.compile(r"Timeout \(\d{1,9}:\d\d:\d\d(?:\.\d+)?\)!")
_GDB_THREAD = re.compile(r"Thread (\d{1,9}) \(.*?(?:LWP|process) (\d{1,9})\b.*\):?")
_GDB_FRAME = re.compile(
    r"#\d{1,9}\s+(?:0x[0-9a-f]{1,16} in )?(\S.*?) \(.*?\)(?: (?:from|at) (\S+?)(?::(\d{1,9}))?)?"
)
_GDB_SIGNAL = re.compile(r".*\b(?:terminated with|received) signal (SIG[A-Z0-9]{2,10}|\d{1,2})\b.*")

_INSTALLED = frozenset(
    {"torch", "numpy", "triton", "torchvision", "lightning", "pytorch_lightning", "accelerate"}
    | {"deepspeed", "transformers", "datasets", "horovod", "ray", "safetensors", "requests"}
    | {"urllib3", "huggingface_hub", "fsspec", "s3fs", "botocore", "megatron", "pandas", "PIL"}
)
"""packages that a rank's stack often shows and that no job brings itself"""

_HEADS = re.compile(
    r"=== Rank \d+: \S+ ===|Process \d+: |Fatal Python error: |Timeout \(\d+:\d\d:\d\d|GNU gdb |"
    r"Attaching to |\[New LWP |(?:Current thread|Thread) (?:0x[0-9a-f]+|\d+) ?(?:\(|\[)|#0 +(?:0x)?"
)
"""how a file of stacks begins"""


class ProcessStack(msgspec.Struct, frozen=True, kw_only=True):
    """The stack of one process."""

    stack: Stack
    pid: int | None = None
    rank: int | None = None
    host: str = ""
    fatal: str = ""
    """'Segmentation fault', 'SIGABRT': what this thread died of"""
    line: int = 1
    """where it is in the file"""


class _Thread(msgspec.Struct):
    key: str
    """its name or number: 'MainThread', '4711', 'Thread 1'"""
    line: int
    active: bool = False
    holds_gil: bool = False
    current: bool = False
    frames: list[Frame] = []


def looks_like(peek: bytes, name: str) -> bool:
    """By its first lines; a log with a stack further down is a log."""
    text = peek[:4096].decode("utf-8", "replace").lstrip()
    if text[:1] in ("[", "{"):
        return name.endswith(".stack.json") or ('"frames"' in text and '"owns_gil"' in text)
    return bool(_HEADS.match(plain(text.partition("\n")[0])))


def read(data: bytes) -> tuple[ProcessStack, ...]:
    """Never raises; () when there is no stack in it."""
    if data.lstrip()[:1] in (b"[", b"{"):
        return _from_json(data)
    reader = _Reader()
    for number, raw in enumerate(data.split(b"\n", MOST_LINES)[:MOST_LINES], start=1):
        reader.take(plain(raw[:_LONGEST].decode("utf-8", "replace")).rstrip(), number)
    reader.end_process()
    return tuple(reader.found)


class _Reader:
    def __init__(self) -> None:
        self.found: list[ProcessStack] = []
        self._rank: int | None = None
        self._host = ""
        self._begin(None)

    def _begin(self, pid: int | None) -> None:
        self._pid = pid
        self._fatal = ""
        self._threads: list[_Thread] = []

    def take(self, line: str, number: int) -> None:
        if self._take_head(line) or self._take_thread(line, number):
            return
        frame = _frame(line)
        if frame is None:
            return
        if not self._threads:  # gdb names no thread where there is only one
            self._threads.append(_Thread(key="", line=number, frames=[]))
        if len(self._threads[-1].frames) < MOST_FRAMES:
            self._threads[-1].frames.append(frame)

    def _take_head(self, line: str) -> bool:
        """Whose stacks follow, and what happened to it."""
        if whose := _RANK.fullmatch(line):
            self.end_process()
            self._rank, self._host = int(whose[1]), whose[2]
        elif process := _PROCESS.match(line) or _ATTACHED.match(line):
            self.end_process()
            self._begin(int(process[1]))
        elif fatal := _FATAL.fullmatch(line) or _GDB_SIGNAL.fullmatch(line):
            if self._threads:
                self.end_process()
            self._fatal = fatal[1]
        elif _TIMEOUT.fullmatch(line):
            self.end_process()
        else:
            return False
        return True

    def _take_thread(self, line: str, number: int) -> bool:
        if handler := crash_file.THREAD.fullmatch(line):
            name = handler[3] or handler[2]
            current = handler[1].startswith("Current")
            self._threads.append(_Thread(key=name, line=number, current=current, frames=[]))
        elif gdb := _GDB_THREAD.fullmatch(line):
            if gdb[1] == "1" and self._pid is None and not self._fatal:
                self._pid = int(gdb[2])  # a process's first thread has its number
            self._threads.append(_Thread(key=f"Thread {gdb[1]}", line=number, frames=[]))
        elif spy := _SPY_THREAD.fullmatch(line):
            state = spy[2] or ""
            self._threads.append(
                _Thread(
                    key=spy[3] or spy[1],
                    line=number,
                    active=state.startswith("active"),
                    holds_gil=state.endswith("gil"),
                    frames=[],
                )
            )
        else:
            return False
        return True

    def end_process(self) -> None:
        thread = _main(self._threads, self._pid)
        if thread is not None:
            self.found.append(
                ProcessStack(
                    stack=Stack(
                        frames=tuple(thread.frames),
                        active=thread.active,
                        holds_gil=thread.holds_gil,
                    ),
                    pid=self._pid,
                    rank=self._rank,
                    host=self._host,
                    fatal=self._fatal,
                    line=thread.line,
                )
            )
        self._begin(None)


def _frame(line: str) -> Frame | None:
    if handler := crash_file.frame(line):
        return handler
    if spy := _SPY_FRAME.fullmatch(line):
        return Frame(function=spy[1], file=_lengthened(spy[2]), line=int(spy[3] or 0))
    if gdb := _GDB_FRAME.fullmatch(line):
        return Frame(function=gdb[1], file=gdb[2] or "", line=int(gdb[3] or 0))
    return None


def _lengthened(file: str) -> str:
    """py-spy cuts a path down to its package: 'torch/nn/modules/module.py', 'threading.py'. What
    was cut off tells a library's file from the user's own, so a hint of it is put back."""
    package = file.partition("/")[0].removesuffix(".py")
    if package in _INSTALLED:
        return f"…/site-packages/{file}"
    return f"…/lib/python3/{file}" if package in sys.stdlib_module_names else file


def _main(threads: list[_Thread], pid: int | None) -> _Thread | None:
    """The one that crashed; the main thread by its name or number; else the last one listed,
    for faulthandler lists the newest first."""
    shown = [thread for thread in threads if thread.frames]
    for thread in shown:
        if thread.current or thread.key in ("MainThread", "Thread 1", str(pid)):
            return thread
    return shown[-1] if shown else None


# --- as JSON -------------------------------------------------------------------------------------


class _SpyFrame(msgspec.Struct):
    name: str = ""
    filename: str = ""
    line: int = 0


class _SpyThread(msgspec.Struct):
    frames: list[_SpyFrame]
    pid: int | None = None
    os_thread_id: int | None = None
    thread_name: str | None = None
    active: bool = False
    owns_gil: bool = False


def _from_json(data: bytes) -> tuple[ProcessStack, ...]:
    """`py-spy dump --json`, or what a `holdfast run` kept of it."""
    try:
        read = msgspec.json.decode(data, type=list[_SpyThread] | Stack)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return ()
    if isinstance(read, Stack):
        frames = tuple(_legible(f.function, f.file, f.line) for f in read.frames[:MOST_FRAMES])
        return (ProcessStack(stack=msgspec.structs.replace(read, frames=frames)),)
    found: dict[int | None, list[_SpyThread]] = {}
    for thread in read:
        found.setdefault(thread.pid, []).append(thread)
    return tuple(_kept(pid, threads) for pid, threads in found.items())


def _kept(pid: int | None, threads: list[_SpyThread]) -> ProcessStack:
    main = next(
        (t for t in threads if t.thread_name == "MainThread" or (pid and t.os_thread_id == pid)),
        threads[0],
    )
    return ProcessStack(
        pid=pid,
        stack=Stack(
            frames=tuple(_legible(f.name, f.filename, f.line) for f in main.frames[:MOST_FRAMES]),
            active=main.active,
            holds_gil=main.owns_gil,
        ),
    )


def _legible(function: str, file: str, line: int) -> Frame:
    return Frame(function=plain(function), file=plain(file), line=line)
