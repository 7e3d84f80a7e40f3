"""Compares the digests that ranks report of their parameters (rank/replica_check.py). No I/O.

Digests of one step are compared when all ranks of a set have sent theirs, and only where all of
them lay their parameters out alike. What is missing or unlike is not compared, and blames no rank.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from statistics import median
from typing import Any, NamedTuple

import msgspec

from holdfast import text
from holdfast.analysis.job.journal_records import ReplicasRecord
from holdfast.analysis.scene.numbers import ReplicaDifference

MOST_OPEN = 64
"""steps of which some digests have come and others have not; the oldest is given up"""
DIGITS = 8
"""of a digest, for each part of the parameters"""


ReplicaSetName = tuple[int, str]


class ReplicaDigest(msgspec.Struct, frozen=True, kw_only=True):
    """As a rank reports it; `ranks`, `parts` and `device` only the first time."""

    step: int
    number: int
    """torch's number of the rank"""
    members: str
    """stands for `ranks`"""
    series: int = 0
    """which of several optimizers counts `step`"""
    layout: str
    digest: str
    ranks: tuple[int, ...] = ()
    parts: tuple[str, ...] = ()
    device: str = ""
    bytes: int = 0
    gpu: float = 0.0
    host: float = 0.0
    usual_step: float = 0.0
    """seconds, all three"""

    @property
    def set_name(self) -> ReplicaSetName:
        return self.series, self.members


class _Sent(NamedTuple):
    rank: int
    digest: ReplicaDigest


class ReplicaTracker:
    """One attempt of a job."""

    def __init__(self, attempt: int = 0) -> None:
        self.attempt = attempt
        self.differences: tuple[ReplicaDifference, ...] = ()
        self.checks = 0
        self.refusals: Counter[str] = Counter()
        """why ranks had nothing to compare, or could not be compared -> how often"""
        self._ranks: dict[str, tuple[int, ...]] = {}
        self._parts: dict[str, tuple[str, ...]] = {}
        self._devices: dict[int, str] = {}
        self._open: dict[tuple[int, ReplicaSetName], dict[int, _Sent]] = {}
        self._equal_until: dict[ReplicaSetName, int] = {}
        self._compared_at: dict[ReplicaSetName, int] = {}
        self._differed: set[ReplicaSetName] = set()
        self._cost: list[tuple[float, float, float]] = []
        """(of the GPU, of the script, the part of the time between two checks)"""
        self._bytes = 0
        self._cost_told = False

    def refused(self, rank: int, why: str) -> str:
        """A rank has nothing to compare: said once for each reason."""
        self.refusals[why] += 1
        if self.refusals[why] > 1:
            return ""
        return f"--verify-replicas: {text.ranks([rank])} cannot be compared: {why}"

    def add(self, rank: int, told: Mapping[str, Any]) -> str:
        """Returns what to say about it; '' for nothing. Raises ValueError for what is no digest."""
        one = msgspec.convert(dict(told), type=ReplicaDigest)
        if one.ranks:
            self._ranks[one.members] = one.ranks
            self._parts[one.layout] = one.parts
            self._devices[rank] = one.device
        sent = self._open.setdefault((one.step, one.set_name), {})
        sent[one.number] = _Sent(rank, one)
        if sent.keys() != set(self._ranks.get(one.members, ())):
            self._give_up_the_oldest()
            return ""
        del self._open[one.step, one.set_name]
        return self._compare(list(sent.values()))

    def _give_up_the_oldest(self) -> None:
        if len(self._open) > MOST_OPEN:
            self.refusals["some ranks reported no digest"] += 1
            del self._open[next(iter(self._open))]

    def _compare(self, sent: list[_Sent]) -> str:
        first = sent[0].digest
        if len({one.rank for one in sent}) < len(sent):
            return self._not_compared(first, "several of torch's ranks are in one process")
        if len({one.digest.layout for one in sent}) > 1:
            return self._not_compared(first, "they hold different parameters")
        self.checks += 1
        kinds: dict[str, list[int]] = {}
        for one in sent:
            kinds.setdefault(one.digest.digest, []).append(one.rank)
        said = self._count_cost(sent)
        if len(kinds) == 1:
            self._equal_until[first.set_name] = first.step
            return said
        if first.set_name not in self._differed:
            self._differed.add(first.set_name)
            self.differences += (self._difference(first, kinds, sent),)
        return said

    def _not_compared(self, one: ReplicaDigest, why: str) -> str:
        self.refusals[why] += 1
        if self.refusals[why] > 1:
            return ""
        numbers = self._ranks[one.members]
        return f"--verify-replicas: {text.ranks(numbers)} not compared at step {one.step}: {why}"

    def _difference(
        self, one: ReplicaDigest, kinds: Mapping[str, list[int]], sent: Iterable[_Sent]
    ) -> ReplicaDifference:
        ordered = sorted(kinds.values(), key=lambda ranks: (-len(ranks), ranks))
        return ReplicaDifference(
            attempt=self.attempt,
            step=one.step,
            equal_until=self._equal_until.get(one.set_name),
            kinds=tuple(tuple(sorted(ranks)) for ranks in ordered),
            where=_differing(list(kinds), self._parts.get(one.layout, ())),
            devices={s.rank: self._devices[s.rank] for s in sent if self._devices.get(s.rank)},
        )

    # --- what it costs ---------------------------------------------------------------------------

    def _count_cost(self, sent: list[_Sent]) -> str:
        """Of the slowest rank. Said once, when it is known how long a step takes."""
        one = sent[0].digest
        gpu, host = (max(getattr(s.digest, name) for s in sent) for name in ("gpu", "host"))
        usual = min(s.digest.usual_step for s in sent)
        steps = one.step - self._compared_at.get(one.set_name, one.step)
        self._compared_at[one.set_name] = one.step
        self._bytes = max(self._bytes, one.bytes)
        if usual <= 0 or steps <= 0:  # the first one looks for the models as well
            return ""
        self._cost.append((gpu, host, (gpu + host) / (usual * steps)))
        if self._cost_told:
            return ""
        self._cost_told = True
        return f"replicas are compared: {self._sentence()}"

    def _sentence(self) -> str:
        gpu, host, share = self._usual()
        on_gpu = f"{gpu * 1e3:.2g} ms of the GPU and " if gpu else ""
        return (
            f"a check of {text.size(self._bytes)} takes {on_gpu}{host * 1e3:.2g} ms of the script, "
            f"{share:.2%} of the training time at this interval"
        )

    def _usual(self) -> tuple[float, float, float]:
        """The median: where a script makes a new optimizer, its models are looked for again."""
        gpu, host, share = (median(one[i] for one in self._cost or [(0, 0, 0)]) for i in range(3))
        return gpu, host, share

    def record(self) -> ReplicasRecord | None:
        """What became of it in this attempt; None where no rank was asked to report."""
        if not self.checks and not self.refusals:
            return None
        gpu, host, share = self._usual()
        return ReplicasRecord(
            attempt=self.attempt,
            checks=self.checks,
            last_step=max(self._compared_at.values(), default=0),
            different=tuple(sorted({r for one in self.differences for r in one.ranks})),
            different_at=min((one.step for one in self.differences), default=0),
            refused=tuple(self.refusals),
            bytes=self._bytes,
            gpu=round(gpu, 6),
            host=round(host, 6),
            share=round(share, 6),
        )


def _differing(digests: list[str], parts: tuple[str, ...]) -> tuple[str, ...]:
    """The parts of the parameters in which any two of them differ."""
    cut = [[d[at : at + DIGITS] for at in range(0, len(d), DIGITS)] for d in digests]
    unlike = [len(set(column)) > 1 for column in zip(*cut, strict=False)]
    return tuple(name for name, odd in zip(parts, unlike, strict=False) if odd)
