"""The job when nothing is done to it: kept for later drills, and refused where it shows nothing."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from holdfast.analysis.drill.outcome import Observed
from holdfast.analysis.drill.reference import Reference
from holdfast.analysis.drill.rehearsal import JobShape
from holdfast.errors import ConfigError
from holdfast.shell_words import word

FILE = "reference.json"


class ReferenceFile(msgspec.Struct, frozen=True, kw_only=True):
    """What a drill keeps of the undisturbed job, for later drills of the same one."""

    runner: str
    command: tuple[str, ...]
    observed: Observed


class Undisturbed(NamedTuple):
    """The job, when nothing is done to it."""

    reference: Reference
    job: JobShape
    observed: Observed
    runner: str
    checkpoints: str | None
    """the folder that it saves into, below the one it runs in"""

    @property
    def seconds(self) -> float:
        return self.observed.ended - self.observed.starts[0]


def keep(reference: ReferenceFile, folder: Path) -> None:
    (folder / FILE).write_bytes(msgspec.json.encode(reference))


def earlier(folder: str, command: tuple[str, ...]) -> ReferenceFile:
    """Of an earlier drill of the same job."""
    try:
        kept = msgspec.json.decode(Path(folder, FILE).read_bytes(), type=ReferenceFile)
    except OSError as problem:
        raise ConfigError(
            f"--reference {folder}: no undisturbed run of a drill: {problem}",
            hint="give the folder of an earlier drill, such as drills/ID",
        ) from problem
    except msgspec.DecodeError as problem:
        raise ConfigError(
            f"--reference {folder}: {FILE} was written by another version of holdfast, or is "
            f"damaged: {problem}",
            hint="leave --reference out: the undisturbed job is run again",
        ) from problem
    if kept.command != command:
        raise ConfigError(f"--reference {folder}: that was another job: {shlex.join(kept.command)}")
    return kept


def refuse_unusable(observed: Observed, left_out: Sequence[str] = ()) -> None:
    """Raises ConfigError where nothing can be compared with it."""
    seen = f"; what it printed is in {os.path.join(observed.folder, 'screens')}"
    refused = [path for one in observed.attempts for path in one.refused]
    if refused:
        raise _wrote_outside(refused[0], observed.folder, seen)
    if observed.exit_codes[-1:] != (0,):
        raise ConfigError(
            "the job does not end well when nothing is done to it (exit code "
            f"{observed.exit_codes[-1]}){seen}",
            hint=f"a file that it reads is missing? --link {word((*left_out, '')[0], 'PATH')}"
            f"{' (left out, since it may hold checkpoints)' if left_out else ''}; a wrong "
            "argument? run it with `holdfast run` first",
        )
    if not any(one.steps for one in observed.attempts):
        raise ConfigError(
            f"no rank was seen to take a step of an optimizer{seen}",
            hint="a drill needs a script that trains with an optimizer of torch",
        )


def _wrote_outside(path: str, folder: str, seen: str) -> ConfigError:
    """What is linked into the drill's folder has a name there that says nothing."""
    target, told = path, path
    hint = "give it {folder} as the place to save in"
    if path.startswith(f"{folder}/") and (real := os.path.realpath(path)) != path:
        target, told = real, f"{os.path.basename(path)}, which is linked to {real}"
        hint = f"move {word(real, 'it')} away"
    return ConfigError(
        f"the script wants to write to {told}, which is outside of the drill's folder: a drill "
        f"could damage what is there{seen}",
        hint=f"{hint}, or allow it with --writes-to {word(os.path.dirname(target), 'DIR')}",
    )
