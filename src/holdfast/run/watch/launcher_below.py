"""A command that starts ranks of its own, given as a rank: `--no-python accelerate launch …`.

Its ranks are no ranks of ours: they are seen once they enter a group, and cannot be started again
one by one. Any launcher tells its processes their numbers by RANK, so that is what is looked for.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence

import msgspec

from holdfast import text
from holdfast.analysis.machine import Unread
from holdfast.run.watch import rank_processes
from holdfast.run.watch.rank_state import ObservedRank
from holdfast.system import activity, deadline, environments, proc

LOOKED_FOR = 300.0
"""seconds after the start in which such a launcher has started its ranks"""
EVERY = 3.0
SECONDS = 1.0
"""for the answer of /proc, which waits for a process whose memory is locked"""
LONGEST = 200


class LauncherSearch:
    """Among the ranks of this node, now and then."""

    def __init__(self) -> None:
        self._environments = environments.EnvironmentReader()
        self._looked_at = 0.0
        self._before: dict[int, dict[int, str]] = {}

    def sentence(self, ranks: Sequence[ObservedRank], now: float) -> str:
        """'' for none, or not yet: all of its ranks are there when two looks see the same."""
        if now < self._looked_at + EVERY:
            return ""
        self._looked_at = now
        found = {
            rank.rank: numbered
            for rank in ranks
            if _may_be_one(rank, now) and (numbered := self._numbered_below(rank.leader))
        }
        before, self._before = self._before, found
        if not found or found != before:
            return ""
        started = next(iter(found.values()))
        one = proc.row_of(min(started))
        own, script = _command_lines(one.parent, one.pid) if one else ([], [])
        return _in_words([*found], len(started), own, script)

    def _numbered_below(self, pid: int) -> dict[int, str]:
        """pid -> RANK of what it started with several; {} where all have one, as a rank's own
        children have."""
        rows = [row for one in activity.descendants(pid) if (row := proc.row_of(one))]
        pairs = self._environments.of(rows)
        told = {one: environments.value(pairs[one], b"RANK") for one in pairs}
        numbers = rank_processes.below_launchers(
            {one: value.decode(errors="replace") for one, value in told.items() if value}
        )
        found = {one: numbers[one] for one in rank_processes.eldest([*numbers])}
        return found if len({*found.values()}) > 1 else {}


def _may_be_one(rank: ObservedRank, now: float) -> bool:
    in_a_group = rank.beat is not None and rank.beat.claim is not None
    return rank.death is None and not in_a_group and now - rank.started_at < LOOKED_FOR


def _command_lines(*pids: int) -> list[list[str]]:
    answer = deadline.ask(
        {"words": lambda: msgspec.msgpack.encode([proc.arguments(pid) for pid in pids])},
        seconds=SECONDS,
    )["words"]
    unknown: list[list[str]] = [[] for _ in pids]
    return unknown if isinstance(answer, Unread) else msgspec.msgpack.decode(answer)


def _in_words(launchers: list[int], count: int, own: list[str], started: list[str]) -> str:
    name = os.path.basename(next((word for word in _script(own) if word != "-m"), "")) or "unknown"
    is_one = text.plural(launchers, "is a launcher of its own", "are launchers of their own")
    return (
        f"{text.ranks(launchers)} (`{name}`) {is_one}: it started {count} processes with a RANK of "
        "their own, which cannot be restarted one by one; use `holdfast run --nproc-per-node "
        f"{count} {_to_paste(started)}` instead"
    )


def _script(words: Sequence[str]) -> list[str]:
    """A command without its Python and that one's options."""
    rest = list(words)
    if rest and os.path.basename(rest[0]).startswith("python"):
        rest.pop(0)
        while rest and rest[0].startswith("-") and rest[0] != "-m":
            rest.pop(0)
    return rest


def _to_paste(words: Sequence[str]) -> str:
    script = _script(words)
    behind = "" if script != [*words] else "--no-python "
    line = behind + shlex.join(script)
    fits = script and len(line) <= LONGEST and line.isprintable() and "`" not in line
    return line if fits else "SCRIPT"
