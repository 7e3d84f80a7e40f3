"""The folder that a job of a drill runs in: what the script reads is linked, what it saves is not.

A job that found the user's own checkpoints would resume from them, and a drill would damage them.
So entries that hold checkpoints, and those of earlier runs, are left out: the job begins as new.
Small files are copied: a script may write its log over that of an earlier run.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from holdfast.analysis.drill.checkpoints import SUFFIXES
from holdfast.errors import ConfigError

NOT_LINKED = frozenset({"runs", "drills", "wandb", "mlruns", "lightning_logs", "outputs", "logs"})
SAVED = (".pt", ".pth", ".ckpt", ".safetensors", ".distcp", ".pkl", ".bin")
LOOKED_AT = 2000
"""entries of a folder, before it is taken for one of data"""
MIB = 1 << 20
SMALL, COPIED = MIB, 16 * MIB
"""bytes of a file that is copied, and of all that are: what is beyond is linked"""
SAVED_BY_TORCH = (b"PK\x03\x04", *(bytes([0x80, protocol]) for protocol in range(2, 6)))
"""how a .bin begins that torch has saved: a zip, or a pickle"""


def fill(work: Path, source: Path, links: Sequence[str]) -> None:
    """Raises ConfigError where a path behind --link is not there."""
    room = COPIED
    for path in _offered(source):
        if not holds_checkpoints(path):
            copied = _copy_small(path, work / path.name, room)
            room -= copied or 0
            if copied is None:
                (work / path.name).symlink_to(path.resolve())
    for name in links:
        wanted = Path(source, name)
        if not wanted.exists():
            raise ConfigError(f"--link {name}: there is no such file or folder")
        place = work / wanted.relative_to(source) if wanted.is_relative_to(source) else None
        if place is None or place.exists():
            continue
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(wanted.resolve())


def _copy_small(path: Path, place: Path, room: int) -> int | None:
    """Bytes that were copied; None where it is to be linked. A copy counts as written by the job,
    and so must not look like a checkpoint."""
    if not path.is_file() or path.name.endswith(SUFFIXES):
        return None
    size = path.stat().st_size
    if size > min(SMALL, room):
        return None
    try:
        shutil.copy2(path, place)
    except OSError:  # one that may not be read
        place.unlink(missing_ok=True)
        return None
    return size


def left_out(source: Path) -> list[str]:
    """What looks like checkpoints, and may still be data: nanoGPT's are `data/*.bin`."""
    return [path.name for path in _offered(source) if holds_checkpoints(path)]


def _offered(source: Path) -> list[Path]:
    names = sorted(entry.name for entry in os.scandir(source))
    return [source / name for name in names if not name.startswith(".") and name not in NOT_LINKED]


def holds_checkpoints(path: Path) -> bool:
    """Whether a job may have saved this."""
    found = [path] if not path.is_dir() else _below(path)
    return any(one.name.endswith(SAVED) and _may_hold_state(one) for one in found)


def _may_hold_state(path: Path) -> bool:
    """Data are called .bin and .pkl, too: nanoGPT's train.bin and meta.pkl."""
    if path.suffix not in (".bin", ".pkl") or not path.is_file():
        return True
    try:
        with path.open("rb") as file:
            begins = file.read(MIB)
            whole = not file.read(1)
    except OSError:
        return True
    if path.suffix == ".bin":
        return begins.startswith(SAVED_BY_TORCH)
    return not whole or b"torch" in begins or b"numpy" in begins


def _below(top: Path) -> Iterator[Path]:
    seen = 0
    for folder, folders, files in os.walk(top):
        for name in (*files, *folders):
            yield Path(folder, name)
            seen += 1
            if seen >= LOOKED_AT:
                return


def script_in(words: Sequence[str], options: Sequence[str], source: Path, work: Path) -> list[str]:
    """The script and its arguments, as they are to be typed in the work folder."""
    found = [word.replace("{folder}", str(work)) for word in words]
    is_file = not {"-m", "--module"} & set(options)
    if found and is_file and (source / found[0]).exists():
        found[0] = str((source / found[0]).resolve())
    return found
