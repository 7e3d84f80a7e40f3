"""What to say about a collective that some ranks miss: summary, reason and fix. Pure."""

from __future__ import annotations

from typing import NamedTuple

from holdfast.analysis.source.collectives.torch_calls import NEW_GROUPS
from holdfast.analysis.source.ranks.missed_collectives import MissedCollective

MEANS = "a collective completes when every rank of its group has called it; "


class MissedMessage(NamedTuple):
    summary: str
    reason: str
    fix: str


def message(one: MissedCollective) -> MissedMessage:
    if one.left:
        said = _some_leave_before_it(one)
    elif one.stop.collective.name in NEW_GROUPS:
        said = _some_create_the_group(one)
    else:
        said = _some_call_it(one)
    group = one.stop.collective.group
    alone = f" (unless `{group}` has no other members)" if group and not one.sure else ""
    return said._replace(reason=f"{MEANS}{said.reason}{alone}")


def _some_call_it(one: MissedCollective) -> MissedMessage:
    return MissedMessage(
        _runs_only(one),
        "the ranks that call it wait for the others until a timeout, or are matched with the next "
        "collective that the others call",
        f"move {one.stop.at.written}(…) out of the condition so that every rank of the group calls "
        "it; keep only what one rank does (print, save) inside",
    )


def _some_create_the_group(one: MissedCollective) -> MissedMessage:
    return MissedMessage(
        _runs_only(one),
        "that includes creating a group, for members and non-members; a rank that creates another "
        "group meanwhile takes it for this one, and the members get mixed up",
        f"call {one.stop.collective.call.written} on every rank for every group, in the same "
        "order, and keep the group this rank is a member of",
    )


def _some_leave_before_it(one: MissedCollective) -> MissedMessage:
    return MissedMessage(
        f"ranks {one.split.where} {one.word} here, before {one.stop.title}",
        "the remaining ranks wait there for the ones that left, until a timeout",
        f"let every rank reach {one.stop.collective.call.written}; to stop all of them, broadcast "
        "the decision and test the received value on every rank",
    )


def _runs_only(one: MissedCollective) -> str:
    first = one.stop.at.written
    name = f"{first}, which calls {one.stop.collective.title}," if one.stop.deep else first
    return f"{name} runs only {one.split.where}"
