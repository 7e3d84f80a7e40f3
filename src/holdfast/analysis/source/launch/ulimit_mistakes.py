"""`ulimit` and `--ulimit` that do not do what they say, for any limit. Pure."""

from __future__ import annotations

from typing import NamedTuple

from holdfast.analysis.source.launch import ulimits
from holdfast.analysis.source.launch.ulimits import UlimitCommand
from holdfast.analysis.source.source import ContainerRun, Source
from holdfast.findings import Place


class UlimitMistake(NamedTuple):
    summary: str
    reason: str
    place: Place
    soft: int = 0
    hard: int = 0


def under_sudo(raised: UlimitCommand) -> UlimitMistake | None:
    if "sudo" not in raised.command.wrappers:
        return None
    return UlimitMistake(
        "`sudo ulimit` has no effect here",
        "ulimit is a shell builtin and sudo starts programs: 'command not found', or a child "
        "process whose limit ends with it",
        raised.command.place,
    )


def only_in_build_step(source: Source, raised: UlimitCommand) -> UlimitMistake | None:
    if not ulimits.only_while_building(source, raised.command):
        return None
    return UlimitMistake(
        "`RUN ulimit` applies to that build step only",
        "a container gets its limits from the engine that starts it",
        raised.command.place,
    )


def soft_above_hard(container: ContainerRun, limit: str) -> UlimitMistake | None:
    asked = ulimits.container_ulimit(container, limit)
    if asked is None or not ulimits.soft_above_hard(*asked[1:]):
        return None
    option, soft, hard = asked
    return UlimitMistake(
        f"the soft limit {soft} is above the hard limit {hard}",
        "the engine refuses it, and the container does not start",
        option.place,
        soft,
        hard,
    )
