"""The folder that a job of a drill runs in: what the script reads is linked, what it saves is not.

A job that found the user's own checkpoints would resume from them, and a drill would damage them.
So entries that hold checkpoints, and those of earlier runs, are left out: the job begins as new.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from holdfast.errors import ConfigError

NOT_LINKED = frozenset({"runs", "drills", "wandb", "mlruns", "lightning_logs", "outputs", "logs"})
SAVED = (".pt", ".pth", ".ckpt", ".safetensors", ".distcp", ".pkl", ".bin")
LOOKED_AT = 2000
"""entries of a folder, before it is taken for one of data"""


def fill(work: Path, source: Path, links: Sequence[str]) -> None:
    """Raises ConfigError where a path behind --link is not there."""
    for path in _offered(source):
        if not holds_checkpoints(path):
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


def left_out(source: Path) -> list[str]:
    """What looks like checkpoints, and may still be data: nanoGPT's are `data/*.bin`."""
    return [path.name for path in _offered(source) if holds_checkpoints(path)]


def _offered(source: Path) -> list[Path]:
    names = sorted(entry.name for entry in os.scandir(source))
    return [source / name for name in names if not name.startswith(".") and name not in NOT_LINKED]


def holds_checkpoints(path: Path) -> bool:
    """Whether a job may have saved this."""
    if not path.is_dir():
        return path.name.endswith(SAVED)
    return any(name.endswith(SAVED) for name in _names(path))


def _names(folder: Path) -> Iterator[str]:
    seen = 0
    for _, folders, files in os.walk(folder):
        for name in (*files, *folders):
            yield name
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
