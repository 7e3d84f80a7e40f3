"""In a drill a script writes into the drill's own folder and nowhere else: the user's checkpoints,
logs and results stay as they are.

Python tells an audit hook of every file that is opened for writing, renamed or removed. What native
code writes is not seen here; the one common way, torch.save with a path, is checked beforehand.
"""

from __future__ import annotations

import errno
import functools
import os
import re
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from holdfast.rank import delivery
from holdfast.rank.witness.delivery import FOLDER, WRITES

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
SYSTEM = ("/dev/", "/proc/", "/sys/")
CACHES = (
    "XDG_CACHE_HOME", "HF_HOME", "HF_HUB_CACHE", "HF_DATASETS_CACHE", "TORCH_HOME",
    "TORCHINDUCTOR_CACHE_DIR", "TORCH_EXTENSIONS_DIR", "TRITON_HOME", "TRITON_CACHE_DIR",
    "CUDA_CACHE_PATH", "NUMBA_CACHE_DIR", "MPLCONFIGDIR",
)  # fmt: skip
LAUNCHERS = (delivery.WORDS, delivery.EVENTS, "TORCHELASTIC_ERROR_FILE")
"""files that the launcher gave the rank: beside them it writes what it has to tell"""
LAUNCHERS_FOLDER = re.compile(r"(.*/holdfast-\d+-\w+)/")
"""that `holdfast run` makes for its ranks on a local disk (run/launch/socket_folder.py)"""
HOME_CACHES = (".cache", ".triton", ".nv")
CHECKPOINTS = (".pt", ".pth", ".ckpt", ".safetensors", ".distcp", ".bin", ".tar", ".pkl", ".npz")
LEAVES = frozenset({"os.remove", "os.rmdir", "os.mkdir", "os.rename", "os.link", "os.symlink"})
"""change the folder of their path, and never what a link at its end leads to"""
PATHS = {
    "os.remove": ((0, 1),),
    "os.rmdir": ((0, 1),),
    "os.mkdir": ((0, 2),),
    "os.rename": ((0, 2), (1, 3)),
    "os.link": ((1, 3),),
    "os.symlink": ((1, 2),),
    "os.truncate": ((0, None),),
    "os.chmod": ((0, 2),),
    "os.chown": ((0, 3),),
    "os.utime": ((0, 3),),
    "os.setxattr": ((0, None),),
    "os.removexattr": ((0, None),),
    "shutil.rmtree": ((0, None),),
    "sqlite3.connect": ((0, None),),
}
"""of audit events: where the path is among their arguments, and the folder that it starts from"""


def allowed_folders(environment: Mapping[str, str], home: str) -> tuple[str, ...]:
    """As they are, links followed; each with a slash at its end."""
    asked = [
        os.path.dirname(environment[FOLDER]),
        environment.get("TMPDIR", ""),
        *(environment.get(name, "") for name in CACHES),
        *(_place_of(environment.get(name, "")) for name in LAUNCHERS),
        *(os.path.join(home, name) for name in HOME_CACHES),
        *environment.get(WRITES, "").split(os.pathsep),
    ]
    return tuple(dict.fromkeys(f"{os.path.realpath(one)}/" for one in asked if one))


def _place_of(file: str) -> str:
    """All of the launcher's folder: the rank's socket is in it as well, and its name is gone from
    the environment when this is asked."""
    found = LAUNCHERS_FOLDER.match(file)
    return found[1] if found else os.path.dirname(file)


def is_allowed(path: str, folders: Iterable[str], *, follow: bool) -> bool:
    """`path` is absolute. Not `follow`: what is at its end is itself changed, even if it is a
    link."""
    if path.startswith(SYSTEM):  # and /proc/PID/fd leads nowhere that has a name
        return True
    folder, name = os.path.split(path.rstrip("/"))
    if name == "__pycache__" or os.path.basename(folder) == "__pycache__":
        return True
    real = os.path.realpath(path) if follow else os.path.join(os.path.realpath(folder), name)
    return real.startswith(SYSTEM) or f"{real}/".startswith(tuple(folders))


def sentence() -> str:
    return (
        "holdfast drill does not let a script write outside of the drill's own folder, so that "
        "nothing of yours is changed. Give the script a folder below {folder} in its arguments, "
        "or allow this one with --writes-to DIR"
    )


class WriteGuard:
    """Once installed it stays for the life of the process, and of those forked from it."""

    def __init__(self, folders: tuple[str, ...], refused: Callable[[str], None]) -> None:
        self._folders, self._refused = folders, refused
        self.saves: Callable[[], None] = lambda: None
        """called when the script begins to write a checkpoint, in its main thread: a save in
        another one holds the state of an earlier moment"""

    def install(self) -> None:
        sys.addaudithook(self._audit)

    def _audit(self, event: str, args: tuple[Any, ...]) -> None:
        """Called for every event of Python: most are none of ours."""
        if event == "open":
            if args[2] & WRITING:
                self.check(args[0])
                self._note_a_save(args[0])
        elif event in PATHS:
            for path, start in PATHS[event]:
                descriptor = -1 if start is None else args[start]
                self.check(args[path], descriptor, follow=event not in LEAVES)

    def _note_a_save(self, path: Any) -> None:
        """Whatever it is called until it is whole: 'last.pt.tmp'."""
        if isinstance(path, int) or threading.current_thread() is not threading.main_thread():
            return
        if any(suffix in os.path.basename(os.fsdecode(path)) for suffix in CHECKPOINTS):
            self.saves()

    def check(self, path: Any, folder: int = -1, *, follow: bool = True) -> None:
        """Raises PermissionError for a path that must not be written."""
        if isinstance(path, int) or path in ("", b"", ":memory:"):
            return
        told = os.fsdecode(path)
        start = os.getcwd() if folder is None or folder < 0 else f"/proc/self/fd/{folder}"
        whole = os.path.join(os.path.realpath(start), told) if told[:1] != "/" else told
        if not is_allowed(whole, self._folders, follow=follow):
            self._refused(whole)
            raise PermissionError(errno.EACCES, sentence(), whole)

    def follow_torch(self, torch: Any) -> None:
        """`torch.save` opens its file in C++."""
        open_writer = torch.serialization._open_zipfile_writer  # noqa: SLF001

        @functools.wraps(open_writer)
        def check_and_open(name_or_buffer: Any) -> Any:
            if isinstance(name_or_buffer, str | os.PathLike):
                self.check(name_or_buffer)
                self._note_a_save(name_or_buffer)
            return open_writer(name_or_buffer)

        torch.serialization._open_zipfile_writer = check_and_open  # noqa: SLF001
