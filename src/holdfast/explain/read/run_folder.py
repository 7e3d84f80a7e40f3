"""The folder of a `holdfast run`, on a disk or packed by `holdfast bundle`: which files to read."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence

import msgspec

from holdfast.analysis.job import run_marker
from holdfast.analysis.job.run_marker import RunMarker
from holdfast.analysis.job.run_paths import MARKER, RunPaths
from holdfast.analysis.rules import rule
from holdfast.analysis.rules.rule import RuleSet
from holdfast.analysis.scene.scene import LastWords
from holdfast.explain.read import run_journal
from holdfast.explain.read.inputs import Opened
from holdfast.explain.read.run_journal import Story

_JOURNAL = "journal.jsonl"
_LARGEST_MARKER = 64 << 10
_LARGEST_RULES = 1 << 20
_RULES = "rules.json"
_WORDS = "last_words.json"
_OF_A_RANK = ("stdout.log", "stderr.log", _WORDS, f"{_WORDS}.crash", f"{_WORDS}.recorder.json")
"""in the order in which they are read: the log tells more than what is repeated in the others"""
_TAKEN = re.compile(r"rank-(\d{1,9})\.(?:stack|recorder)\.json|kernel\.log|ncclras\.txt")


class RunFolder(msgspec.Struct, frozen=True, kw_only=True):
    paths: RunPaths
    story: Story
    marker: RunMarker = RunMarker()

    def files(self) -> Iterator[tuple[int | None, str]]:
        """(rank, path) of what is worth reading: the ranks' logs and last words, and the last
        evidence taken."""
        folder = self.paths.attempt(self.story.attempt)
        for name in _listed(folder):
            if inside := re.fullmatch(r"rank-(\d{1,9})", name):
                for file in _OF_A_RANK:
                    path = os.path.join(folder, name, file)
                    if os.path.isfile(path):
                        yield int(inside[1]), path
        for evidence in self.evidence_folders()[-1:]:
            for name in _listed(evidence):
                if taken := _TAKEN.fullmatch(name):
                    yield int(taken[1]) if taken[1] else None, os.path.join(evidence, name)

    def rules(self) -> RuleSet:
        """The user's own, as they were when the run began."""
        return rule.decode(_content(self.paths.rules, _LARGEST_RULES), self.paths.rules)

    def evidence_folders(self) -> list[str]:
        """Oldest first."""
        folder = self.paths.attempt(self.story.attempt)
        numbered = [
            (number, name)
            for name in _listed(folder)
            if (number := RunPaths.evidence_number(name)) is not None
        ]
        return [os.path.join(folder, name) for _, name in sorted(numbered)]


def looks_like(path: str) -> bool:
    return os.path.isfile(os.path.join(path, MARKER))


def nodes_inside(path: str) -> list[str]:
    """The folders of one run's nodes, as an unpacked bundle of several machines has them; []
    for any other folder."""
    inside = [os.path.join(path, name) for name in _listed(path)]
    runs = {folder: _marker(folder).of for folder in inside if looks_like(folder)}
    return list(runs) if len(set(runs.values())) == 1 and all(runs.values()) else []


def read(path: str) -> RunFolder:
    """Never raises: a journal that cannot be read tells nothing, and the logs are still there."""
    root, name = os.path.split(path.rstrip("/") or path)
    paths = RunPaths(root, name)
    text = _content(paths.journal, run_journal.LARGEST)
    story = run_journal.read(text, paths.journal)
    return RunFolder(paths=paths, story=story, marker=_marker(paths.folder))


def _marker(folder: str) -> RunMarker:
    content = _content(os.path.join(folder, MARKER), _LARGEST_MARKER)
    return run_marker.decode(content) or RunMarker()


def read_all(folders: Sequence[str]) -> list[RunFolder]:
    """Of several nodes' folders of one run, one journal speaks for all; it comes first."""
    found = [read(folder) for folder in folders]
    if any(one.marker.of for one in found):
        found.sort(key=_authority, reverse=True)
    leading: dict[str, Story] = {}
    return [
        msgspec.structs.replace(one, story=_of_run(one, leading)) if one.marker.of else one
        for one in found
    ]


def _of_run(one: RunFolder, leading: dict[str, Story]) -> Story:
    text = _content(one.paths.journal, run_journal.LARGEST)
    return story_of_node(text, one.paths.journal, one.marker, leading)


def story_of_node(text: bytes, source: str, marker: RunMarker, leading: dict[str, Story]) -> Story:
    """`leading` has the story that speaks for each run, once one was read."""
    lead = leading.get(marker.of)
    story = run_journal.read(text, source, attempt=lead.attempt if lead else None)
    # Whose host a verdict names is not where all lines of this folder are from.
    story = msgspec.structs.replace(story, host="")
    if lead is None:
        leading[marker.of] = story
        return story
    # Its sentences are the coordinator's, and are told once.
    last = None if lead.ended else story.last
    return msgspec.structs.replace(story, told=(), rules=(), last=last, finished=lead.finished)


def _authority(one: RunFolder) -> tuple[object, ...]:
    """A journal that was written to its end, the coordinator's before others, and the longest."""
    return (one.story.ended, one.marker.coordinates, one.story.newest_at)


def _content(path: str, most: int) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(most)
    except OSError:
        return b""


def last_words(name: str, peek: bytes) -> LastWords | None:
    """What a rank wrote down as it fell; its traceback may never have come to the log."""
    if not name.endswith(_WORDS):
        return None
    try:
        return msgspec.json.decode(peek, type=LastWords)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None


class Packed:
    """Runs in archives. `holdfast bundle` puts marker and journal before all else, so that while
    the rest goes by it is known what to read of it."""

    def __init__(self) -> None:
        self._stories: dict[str, Story | None] = {}
        """'bundle.tar.gz: ID/' -> its story"""
        self._markers: dict[str, RunMarker] = {}
        self._leading: dict[str, Story] = {}

    def story(self, opened: Opened) -> Story | None:
        """When this is the journal of a packed run."""
        folder, _, file = opened.name.rpartition("/")
        if ": " not in folder:
            return None
        if file == MARKER:
            self._stories[f"{folder}/"] = None
            self._markers[f"{folder}/"] = run_marker.decode(opened.peek()) or RunMarker()
        if file != _JOURNAL or f"{folder}/" not in self._stories:
            return None
        marker, text = self._markers[f"{folder}/"], opened.whole(run_journal.LARGEST)
        if marker.of:
            story = story_of_node(text, opened.name, marker, self._leading)
        else:
            story = run_journal.read(text, opened.name)
        self._stories[f"{folder}/"] = story
        return story

    def rules(self, opened: Opened) -> RuleSet | None:
        """When this is the file of a packed run that has the user's own rules."""
        folder, _, file = opened.name.rpartition("/")
        if file != _RULES or f"{folder}/" not in self._stories:
            return None
        return rule.decode(opened.whole(_LARGEST_RULES), opened.name)

    def node(self, name: str) -> str:
        """Of which node this member of an archive is; '' where that is not known."""
        return next((m.node for folder, m in self._markers.items() if name.startswith(folder)), "")

    def passes_over(self, name: str) -> bool:
        """A member of a packed run that belongs to another attempt than the one explained."""
        for folder, story in self._stories.items():
            if name.startswith(folder):
                return story is None or not _is_wanted(name[len(folder) :], story)
        return False


def _is_wanted(inside: str, story: Story) -> bool:
    parts = inside.split("/")
    if len(parts) != 3 or parts[0] != f"attempt-{story.attempt}" or story.finished:
        return False
    if parts[1].startswith("rank-"):
        return parts[2] in _OF_A_RANK
    return parts[1] == (story.evidence or parts[1]) and bool(_TAKEN.fullmatch(parts[2]))


def _listed(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []
