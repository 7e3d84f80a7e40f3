"""Which folders belong together: of several nodes, and seen by several machines. Pure.

On a shared disk every machine lists the folders of all; only the machine that a launcher runs on
knows whether it lives.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from holdfast.run.runs.registry import RunState, RunSummary


class SeenRun(msgspec.Struct, frozen=True, kw_only=True):
    """One folder, and the machine that was asked about it."""

    machine: str
    """as the user named it"""
    summary: RunSummary

    @property
    def node(self) -> str:
        """What to call the node it is of."""
        return self.summary.node or self.summary.host or self.machine


def each_once(seen: Iterable[SeenRun]) -> list[SeenRun]:
    """The newest first; a folder that several machines see is told by the one that knows most."""
    kept: dict[tuple[object, ...], SeenRun] = {}
    for one in seen:
        summary = one.summary
        # The same name on disks of their own are folders of different launchers.
        key = (summary.id, summary.host, summary.pid, summary.started)
        if key not in kept or kept[key].summary.state is RunState.UNKNOWN:
            kept[key] = one
    by_age = sorted(kept.values(), key=lambda one: one.summary.id)
    return sorted(by_age, key=lambda one: one.summary.started, reverse=True)


def by_run(seen: Sequence[SeenRun]) -> list[list[SeenRun]]:
    """The folders of each run, its leading one first; the newest run first."""
    runs: dict[str, list[SeenRun]] = {}
    for one in seen:
        runs.setdefault(one.summary.run, []).append(one)
    return [sorted(folders, key=_weight) for folders in runs.values()]


def _weight(one: SeenRun) -> tuple[object, ...]:
    """The coordinator's journal tells most, unless its machine was lost and others' have an end;
    then what runs, then what has come furthest."""
    summary = one.summary
    return (
        summary.state not in (RunState.RUNNING, RunState.ENDED),
        not summary.coordinates,
        summary.state is not RunState.RUNNING,
        -summary.steps,
        one.node,
        summary.id,
    )


def state_of(folders: Sequence[SeenRun]) -> RunSummary:
    """One line for the run: its leading folder, running while any launcher of it lives, with the
    ranks of all its nodes."""
    lead = folders[0].summary
    ranks = {one.node: one.summary.world for one in folders}
    lead = msgspec.structs.replace(lead, world=sum(ranks.values()))
    running = any(one.summary.state is RunState.RUNNING for one in folders)
    if running and lead.state is not RunState.RUNNING:
        return msgspec.structs.replace(lead, state=RunState.RUNNING, exit_code=None)
    return lead


def odd_nodes(folders: Sequence[SeenRun]) -> list[str]:
    """'b: lost': nodes of which something else is true than of the run."""
    told = state_of(folders)
    return [
        f"{one.node}: {in_words(one.summary)}"
        for one in folders
        if in_words(one.summary) != in_words(told)
    ]


def in_words(summary: RunSummary) -> str:
    """'running', 'finished', 'exit 137', 'lost', 'unknown'"""
    if summary.state is RunState.ENDED:
        return f"exit {summary.exit_code}" if summary.exit_code else "finished"
    return str(summary.state.value)


def labels(folders: Sequence[SeenRun]) -> list[str]:
    """A name for each that no other one has."""
    given: list[str] = []
    for one in folders:
        name = one.node
        number = 2
        while name in given:
            name, number = f"{one.node}-{number}", number + 1
        given.append(name)
    return given
