"""What coordinator and members of a check say to each other: questions and answers, no commands.

A member answers every request with the one reply that belongs to it, or with `Sorry`.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from holdfast.analysis.machine import MachineFacts, Resolution, Unread
from holdfast.analysis.nodes import StoreBelief
from holdfast.check.nodes.smoke import messages as smoke
from holdfast.check.plan import Flags
from holdfast.findings import Finding
from holdfast.nodes.clock_exchange import ClockPing, ClockPong
from holdfast.nodes.probing.messages import ProbeReply, ProbeRequest


class MemberMessage(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The base of all of them; the tag says which."""


# --- member -> coordinator, once ------------------------------------------------------------------


class Arrival(MemberMessage, frozen=True):
    """The first message of a member."""

    host: str
    """its own name for itself, or the scheduler's for it"""
    index: int | None = None
    """its number among the nodes, where a scheduler gave one"""
    rack: str = ""
    """or switch, where the scheduler tells"""


# --- requests -------------------------------------------------------------------------------------


class LookAtYourself(MemberMessage, frozen=True):
    """Run the one-machine checks."""

    flags: Flags
    only: tuple[str, ...]
    skip: tuple[str, ...]
    deadline: float


class ResolveNames(MemberMessage, frozen=True):
    names: tuple[str, ...]
    endpoint: str
    """of the job's store; '' when none is named"""


class Finish(MemberMessage, frozen=True):
    """The last message: the check is over, this is what came of it."""

    exit_code: int
    words: str


# --- replies --------------------------------------------------------------------------------------


class SelfReport(MemberMessage, frozen=True):
    facts: MachineFacts
    findings: tuple[Finding, ...]
    boot_id: str | Unread


class ResolvedNames(MemberMessage, frozen=True):
    names: tuple[Resolution, ...]
    store: StoreBelief | None


class Sorry(MemberMessage, frozen=True):
    """This member could not do what it was asked."""

    why: str


Request: TypeAlias = (
    LookAtYourself | ResolveNames | ProbeRequest | ClockPing | smoke.Requests | Finish
)
Reply: TypeAlias = (
    Arrival | SelfReport | ResolvedNames | ProbeReply | ClockPong | smoke.Replies | Sorry
)
