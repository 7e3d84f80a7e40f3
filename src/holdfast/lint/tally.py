"""What lint found in some files, and in the end in all of them."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from holdfast.lint.judge import LintFinding
from holdfast.lint.walk import UnreadFile


class LintReport(NamedTuple):
    findings: list[LintFinding]
    unread: list[UnreadFile]
    read: list[tuple[str, str]]
    """path and language of every file that was looked at"""
    refused: int
    """whole scripts that are no valid Python"""
    remarks: list[str]
    """mistakes in ignore comments"""

    @property
    def looked_at(self) -> int:
        return len(self.read)


class LintTally(msgspec.Struct):
    """Everything is kept with the number of its file: files may be done in any order. A struct, so
    that a child process can hand it over as typed bytes."""

    findings: list[tuple[int, LintFinding]] = []
    unread: list[tuple[int, UnreadFile]] = []
    read: list[tuple[int, tuple[str, str]]] = []
    remarks: list[tuple[int, str]] = []
    refused: int = 0

    def add(self, other: LintTally) -> None:
        self.findings += other.findings
        self.unread += other.unread
        self.read += other.read
        self.remarks += other.remarks
        self.refused += other.refused

    def report(self) -> LintReport:
        return LintReport(
            findings=[one for _, one in sorted(self.findings, key=lambda pair: pair[0])],
            unread=[unread for _, unread in sorted(self.unread)],
            read=[read for _, read in sorted(self.read)],
            refused=self.refused,
            remarks=[remark for _, remark in sorted(self.remarks, key=lambda pair: pair[0])],
        )
