"""Was the checkpoint saved by the run that wants to resume from it? Pure.

Another model or optimizer can never continue. Another configuration, or another number of ranks,
may be intended: then the user has to accept it, and the error says how.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Literal, get_args

import msgspec

from holdfast.analysis.checkpoints.manifest import Manifest
from holdfast.checkpoint.config_texts import is_compared, is_same
from holdfast.errors import ConfigError, ResumeRefused

Accept = Literal["config", "world-size", "data", "fresh", "ranks"]
"""what `Checkpoint.resume(accept=…)` takes"""
ACCEPTABLE: tuple[str, ...] = get_args(Accept)
ACCEPT = "HOLDFAST_ACCEPT"
LONGEST = 6
"""differing keys that a sentence names"""


class RunningJob(msgspec.Struct, frozen=True, kw_only=True):
    """What the job is now, in the manifest's terms."""

    structure: str
    config: dict[str, str]
    world_size: int
    kind: str
    per_rank: tuple[str, ...] = ()


class RunDifference(msgspec.Struct, frozen=True, kw_only=True):
    slug: str
    sentence: str
    accept: Literal["", Accept]
    """the value that accepts it; '' when nothing can"""
    hint: str = ""
    """what to do, where that is not the same for all differences of its kind"""


def differences(saved: Manifest, running: RunningJob) -> list[RunDifference]:
    """Everything that differs and matters, the worst first."""
    found = []
    if saved.per_rank != running.per_rank:
        return [_per_rank(saved, running)]
    if saved.structure != running.structure or saved.kind != running.kind:
        found.append(_structure(saved, running))
    if keys := _differing(saved.config, running.config):
        found.append(_config(keys, saved.config, running.config))
    # A data position that holds for any number of ranks makes their number free.
    if saved.world_size != running.world_size:
        if saved.per_rank:
            found.append(_bound_to_ranks(saved, running))
        elif saved.data != "global":
            found.append(_world(saved, running))
    return found


def only_structure_differs(saved: Manifest, running: RunningJob) -> bool:
    """So that its tensors can be named one by one."""
    same = (saved.kind, saved.per_rank) == (running.kind, running.per_rank)
    return same and saved.structure != running.structure


def own_tensors(rank: int, details: str) -> RunDifference:
    return RunDifference(
        slug="config-changed", sentence=f"the tensors of rank {rank} differ ({details})", accept=""
    )


def _per_rank(saved: Manifest, running: RunningJob) -> RunDifference:
    return RunDifference(
        slug="config-changed",
        sentence=f"it was saved with {_given(saved.per_rank)}, this job has "
        f"{_given(running.per_rank)}",
        accept="",
        hint=f"make the State with {_given(saved.per_rank)}, or start in an empty folder",
    )


def _given(per_rank: tuple[str, ...]) -> str:
    names = ", ".join(f'"{name}"' for name in per_rank)
    return f"per_rank=({names}{',' if len(per_rank) == 1 else ''})"


def _bound_to_ranks(saved: Manifest, running: RunningJob) -> RunDifference:
    return RunDifference(
        slug="world-size-mismatch",
        sentence=f"it was saved by {saved.world_size} ranks, each with its own "
        f"{' and '.join(saved.per_rank)}, and this job has {running.world_size}",
        accept="",
        hint=f"start with {saved.world_size} ranks, or in an empty folder",
    )


def _structure(saved: Manifest, running: RunningJob) -> RunDifference:
    if saved.kind != running.kind:
        what = f"it holds {saved.kind} state, this job has {running.kind} state"
    else:
        what = "names, shapes or types of its tensors differ from this job's model and optimizer"
    return RunDifference(slug="config-changed", sentence=what, accept="")


def _differing(saved: Mapping[str, str], running: Mapping[str, str]) -> list[str]:
    """What one of both says is not to be compared, is not: the other may have been one rank, to
    which nothing differs between ranks."""
    return sorted(
        key
        for key in saved.keys() | running.keys()
        if not _same(saved.get(key), running.get(key))
        and is_compared(saved.get(key, ""))
        and is_compared(running.get(key, ""))
    )


def _same(saved: str | None, running: str | None) -> bool:
    return saved == running or (
        saved is not None and running is not None and is_same(saved, running)
    )


def _config(keys: list[str], saved: Mapping[str, str], running: Mapping[str, str]) -> RunDifference:
    said = [f"{key}: {_value(saved, key)} then, {_value(running, key)} now" for key in keys]
    more = f", and {len(said) - LONGEST} more" if len(said) > LONGEST else ""
    return RunDifference(
        slug="config-changed",
        sentence=f"the configuration has changed ({'; '.join(said[:LONGEST])}{more})",
        accept="config",
    )


def _value(config: Mapping[str, str], key: str) -> str:
    return config.get(key, "not set")


def _world(saved: Manifest, running: RunningJob) -> RunDifference:
    lost = (
        "the data position was saved per rank"
        if saved.data == "per-rank"
        else "the data position is unknown"
    )
    return RunDifference(
        slug="world-size-mismatch",
        sentence=f"it was saved by {saved.world_size} ranks, this job has {running.world_size}, "
        f"and {lost}: samples would be skipped or seen twice",
        accept="world-size",
    )


def accepted(given: Collection[str], environment: Mapping[str, str]) -> frozenset[str]:
    """By the script, or by the environment it was started in."""
    if isinstance(given, str):
        given = [given]
    from_environment = {word.strip() for word in environment.get(ACCEPT, "").split(",")} - {""}
    words = from_environment | set(given)
    if unknown := sorted(words - set(ACCEPTABLE)):
        raise ConfigError(
            f"accept: unknown value {unknown[0]!r} (choose from {', '.join(ACCEPTABLE)})"
        )
    return frozenset(words)


def refuse(path: str, found: Collection[RunDifference], accept: Collection[str]) -> None:
    """Raise unless every difference was accepted."""
    open_ones = [difference for difference in found if difference.accept not in accept]
    if not open_ones:
        return
    needed = [difference.accept for difference in open_ones]
    if own := [difference.hint for difference in open_ones if difference.hint]:
        hint = own[0]
    elif "" in needed:
        hint = "start with the model and optimizer it was saved from, or in an empty folder"
    else:
        hint = (
            f"if the change is intended, call resume(accept={set(needed)!r}) or set "
            f"{ACCEPT}={','.join(needed)}; if not, start as before"
        )
    sentence = "; ".join(difference.sentence for difference in open_ones)
    slugs = dict.fromkeys(difference.slug for difference in open_ones)
    raise ResumeRefused(f"{path} is not from this run: {sentence}", hint=hint, slugs=slugs)
