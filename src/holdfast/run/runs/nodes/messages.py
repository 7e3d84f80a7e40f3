"""What is asked of a machine about its runs, and what it answers."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from holdfast.run.runs.registry import RunSummary


class RunsMessage(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The base of all of them; the tag says which."""


class ListRuns(RunsMessage, frozen=True):
    root: str


class StopRun(RunsMessage, frozen=True):
    root: str
    id: str
    """of the folder"""


class SendRun(RunsMessage, frozen=True):
    root: str
    id: str
    most: int
    """bytes"""


class RunsListed(RunsMessage, frozen=True):
    """The newest first."""

    runs: tuple[RunSummary, ...]


class StillStopping(RunsMessage, frozen=True):
    """Every few seconds: its ranks may take a while to save."""

    line: str = ""
    """'' or news for the user"""


class RunStopped(RunsMessage, frozen=True):
    sentence: str


class RunFile(RunsMessage, frozen=True):
    """Secrets are struck out before it leaves its machine."""

    name: str
    content: bytes
    written: float


class RunSent(RunsMessage, frozen=True):
    notes: tuple[str, ...]


class CouldNot(RunsMessage, frozen=True):
    sentence: str
    hint: str = ""


Question: TypeAlias = ListRuns | StopRun | SendRun
RunsReply: TypeAlias = RunsListed | StillStopping | RunStopped | RunFile | RunSent | CouldNot
