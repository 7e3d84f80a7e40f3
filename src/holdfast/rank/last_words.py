"""The exception that ends a rank, written down before its process comes apart.

Survivors of a dead peer raise within milliseconds and may well be gone first: only the words
and their time separate the cause from the consequences.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType, TracebackType
from typing import Any

from holdfast.errors import Error

LONGEST_TEXT = 4096
RECORDERS = ("_dump_nccl_trace_json", "_dump_fr_trace_json")
"""NCCL's, in CUDA builds only, and that of every other backend, since 2.10"""
NCCL2 = "nccl2"
"""the backend that `nccl` stands for since torch 2.15; it has a recorder of its own"""

_LIBRARIES = tuple(
    os.path.join(path, "")
    for path in {
        os.path.dirname(os.__file__),
        *(sysconfig.get_paths().get(name, "") for name in ("purelib", "platlib", "stdlib")),
        os.path.dirname(os.path.dirname(os.path.abspath(__file__))),
    }
    if path
)


class LastWordsWriter:
    """Installs itself before the hook that prints the traceback; never instead of it."""

    def __init__(self, path: str) -> None:
        self.path = path
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)  # of an earlier attempt
        self.pid = os.getpid()
        self.wrote = False
        self._spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        self._spare_is = os.fstat(self._spare)
        self._print = sys.excepthook
        sys.excepthook = self.hook

    def hook(
        self, kind: type[BaseException], value: BaseException, trace: TracebackType | None
    ) -> None:
        if not _script_goes_on():
            self.note(kind, value, trace)
        self._print(kind, value, trace)

    def note(
        self, kind: type[BaseException], value: BaseException, trace: TracebackType | None
    ) -> None:
        if self.wrote or os.getpid() != self.pid:  # a forked child reports to its own parent
            return
        self.wrote = True
        with contextlib.suppress(Exception):  # the traceback itself matters more
            self._give_up_spare()
            write(self.path, describe(kind, value, trace))
            keep_recorder(recorder_file(self.path))

    def note_exit(self, words: dict[str, Any] | None) -> None:
        """The script ends itself with an error code, perhaps for an exception that it handles."""
        if self.wrote or os.getpid() != self.pid:
            return
        with contextlib.suppress(Exception):
            self._give_up_spare()
            if words is not None:
                self.wrote = True
                write(self.path, words)
            keep_recorder(recorder_file(self.path))

    def _give_up_spare(self) -> None:
        """A rank that may open no further file can open this one. A script may have closed ours,
        and have another file by that number."""
        with contextlib.suppress(OSError):
            if os.path.samestat(os.fstat(self._spare), self._spare_is):
                os.close(self._spare)

    def note_unheard(self) -> None:
        """At exit: a script with its own excepthook left Python's copy of what it raised."""
        value = getattr(sys, "last_value", None)
        if isinstance(value, BaseException) and not self.wrote:
            self.note(type(value), value, value.__traceback__)


def _script_goes_on() -> bool:
    """The script called the hook itself to print what it caught: that ends nothing. When Python
    calls it for an uncaught exception, the script's own frames are gone."""
    if threading.get_ident() != threading.main_thread().ident:
        return True
    frame: FrameType | None = sys._getframe()  # noqa: SLF001
    while frame is not None:
        if frame.f_code.co_name == "<module>":
            return True
        frame = frame.f_back
    return False


def describe(
    kind: type[BaseException], value: BaseException, trace: TracebackType | None
) -> dict[str, Any]:
    """The fields of `LastWords` (analysis/scene). As it was said, secrets and all: it is for the
    reader to redact."""
    first = _first_raised(value)
    return {
        "root_kind": type(first).__name__ if first is not value else "",
        "root_text": _clipped(_text(first)) if first is not value else "",
        "kind": kind.__name__,
        "text": _clipped(_text(value)),
        "hint": value.hint[:LONGEST_TEXT] if isinstance(value, Error) else "",
        "slugs": list(value.slugs) if isinstance(value, Error) else [],
        "where": _where(value, trace),
        **_loading(trace if first is value else first.__traceback__, trace),
        "at": time.monotonic(),
    }


def _first_raised(value: BaseException) -> BaseException:
    """Frameworks raise their own exception for the one that says what happened."""
    seen = {id(value)}
    while True:
        before = value.__cause__ or (None if value.__suppress_context__ else value.__context__)
        if before is None or id(before) in seen:
            return value
        seen.add(id(before))
        value = before


def _clipped(text: str) -> str:
    """Beginning and end: what a DataLoader worker raised is the end of a traceback in here."""
    if len(text) <= LONGEST_TEXT:
        return text
    half = LONGEST_TEXT // 2
    return f"{text[: half - 1]}\n…\n{text[2 - half :]}"


def write(path: str, words: dict[str, Any]) -> None:
    """Whole or not at all: readers come any time."""
    part = f"{path}.part"
    with open(part, "w", encoding="utf-8", errors="replace") as file:
        json.dump(words, file)
    os.rename(part, path)


def recorder_file(words: str) -> str:
    return f"{words}.recorder.json"


def keep_recorder(path: str) -> None:
    """The flight recorder of a rank that goes: its server goes with it, and which rank disagrees in
    a collective can only be seen from both sides.

    All recorders that torch may have, in the form of a living rank's answer
    (system/recorder_query.py), so that groups have the same names on all ranks.
    """
    c10d = sys.modules.get("torch._C._distributed_c10d")
    dumps = [dump for name in RECORDERS if (dump := getattr(c10d, name, None)) is not None]
    documents = [_document(dump) for dump in dumps]
    if len(dumps) == len(RECORDERS):
        documents.append(_document(functools.partial(dumps[-1], backend=NCCL2)))
    if not documents:
        return
    part = f"{path}.part"
    with open(part, "wb") as file:
        file.write(documents[0] if len(documents) == 1 else b"[" + b",".join(documents) + b"]")
    os.rename(part, path)


def _document(dump: Callable[[], str | bytes]) -> bytes:
    """Empty where it fails, as NCCL's may on a broken GPU: the others are still worth having."""
    try:
        document = dump()
    except Exception:  # noqa: BLE001
        return b"{}"
    return document if isinstance(document, bytes) else str(document).encode()


def _text(value: BaseException) -> str:
    if isinstance(value, Error):  # its hint has its own field
        return value.sentence
    try:
        return str(value)
    except Exception as problem:  # noqa: BLE001 - an exception may fail to describe itself
        return f"<its text cannot be had: {type(problem).__name__}>"


def _where(value: BaseException, trace: TracebackType | None) -> str:
    """'train.py:88 in forward': the innermost frame of the user's own code."""
    if isinstance(value, SyntaxError) and value.filename:
        return f"{os.path.basename(value.filename)}:{value.lineno or 0}"
    own, innermost = "", ""
    while trace is not None:
        innermost = _line(trace.tb_frame, trace.tb_lineno)
        own = own if _is_installed(trace.tb_frame) else innermost
        trace = trace.tb_next
    return own or innermost


LOADERS = {
    ("torch.distributed.checkpoint.state_dict_loader", "load"): ("checkpoint_id", "storage_reader"),
    ("torch.serialization", "load"): ("f",),
    ("safetensors.torch", "load_file"): ("filename",),
}
"""what loads a checkpoint -> its variables that say from where"""


def _loading(raised: TracebackType | None, trace: TracebackType | None) -> dict[str, Any]:
    """Which file the script was loading, and in which file of the loader it was raised; {} where
    it was loading none."""
    for begin in (trace, raised):
        for frame in _frames(begin):
            key = frame.f_globals.get("__name__", ""), frame.f_code.co_name
            if key in LOADERS:
                given = [frame.f_locals.get(name) for name in LOADERS[key]]
                paths = [one for one in map(_path, given) if one]
                inside = os.path.basename(list(_frames(raised))[-1].f_code.co_filename)
                path = paths[0] if paths else ""
                return {"loading": path, "loader": inside, "metadata": _metadata(path)}
    return {}


def _metadata(path: str) -> str:
    """Whether a distributed checkpoint has the `.metadata` that is written last; '' of anything
    else. What DCP raises need not say so: torch 2.10 says 'metadata is None' of a damaged one too.
    """
    try:
        names = os.listdir(path)
    except OSError:
        return ""
    if any(name.endswith(".metadata") for name in names):
        return "present"
    return "missing" if any(name.endswith(".distcp") for name in names) else ""


def _frames(trace: TracebackType | None) -> Iterator[FrameType]:
    while trace is not None:
        yield trace.tb_frame
        trace = trace.tb_next


def _path(given: Any) -> str:
    named = given if isinstance(given, (str, os.PathLike)) else getattr(given, "path", "")
    return os.fspath(named) if isinstance(named, os.PathLike) else str(named or "")


def own_line(frame: FrameType) -> str:
    """The same for code that has not raised anything yet."""
    inner: FrameType | None = frame
    while inner is not None and _is_installed(inner):
        inner = inner.f_back
    inner = inner or frame
    return _line(inner, inner.f_lineno)


def _is_installed(frame: FrameType) -> bool:
    """Python's own, a package's or ours; packages may come from other environments too
    (--system-site-packages, PYTHONPATH)."""
    file = frame.f_code.co_filename
    packages = f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}"
    return file.startswith((*_LIBRARIES, "<frozen ")) or any(name in file for name in packages)


def _line(frame: FrameType, number: int) -> str:
    code = frame.f_code
    return f"{os.path.basename(code.co_filename)}:{number} in {code.co_name}"
