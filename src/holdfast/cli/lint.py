"""`holdfast lint`: what in scripts will hang, has no effect, or conflicts."""

from __future__ import annotations

import argparse
import gc
import os
import re
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from holdfast.cli import streams
from holdfast.cli.choices import FAIL_ON, names
from holdfast.errors import ConfigError, EnvironmentFailure

if TYPE_CHECKING:
    from holdfast.analysis.source.source import LintingMachine
    from holdfast.lint.config import LintConfig
    from holdfast.lint.tally import LintReport
    from holdfast.lint.walk import LintText, UnreadFile

T = TypeVar("T")

SUMMARY = "check training and launch scripts: what will hang, has no effect, or conflicts"
STDIN = "-"
PROGRESS_AFTER = 2.0
"""seconds: no progress is shown for what takes less"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "paths",
        nargs="*",
        metavar="FILE|DIR",
        help="training scripts, launch scripts (shell, Slurm), Dockerfiles, compose files, "
        "documents; - for stdin",
    )
    look = parser.add_argument_group("what to look at")
    look.add_argument(
        "--env", action="store_true", help="also check the variables of this environment"
    )
    look.add_argument(
        "--select",
        action="append",
        default=[],
        metavar="FAULT",
        help="only these faults: code, slug or family digit",
    )
    look.add_argument(
        "--ignore",
        action="append",
        default=[],
        metavar="FAULT",
        help="not these faults: code, slug or family digit",
    )
    look.add_argument(
        "--torch-version",
        default="",
        metavar="V",
        help="judge for this torch (default: the installed one, else the newest known)",
    )
    look.add_argument(
        "--stdin-filename",
        default="",
        metavar="NAME",
        help="the file name that stdin is treated as",
    )
    out = parser.add_argument_group("what to print")
    out.add_argument("--output-format", choices=["text", "json", "github"], default="text")
    out.add_argument("--json", action="store_true", help="the same as --output-format json")
    out.add_argument(
        "-v", "--verbose", action="store_true", help="also list each file and its language"
    )
    out.add_argument(
        "--fail-on",
        choices=FAIL_ON,
        default="warning",
        help="exit with 1 from this status on (default: warning)",
    )


def run(arguments: argparse.Namespace) -> int:
    # The collector walks every syntax tree again and again, and there is nothing for it to free:
    # 1522 files of torch and the frameworks on it took 8.1 s of CPU without it and 9.1 s with it,
    # and 142 MiB either way (median of 3, one process).
    gc.disable()
    try:
        return _lint(arguments)
    finally:
        gc.enable()


def _lint(arguments: argparse.Namespace) -> int:
    from holdfast.lint import config

    began = time.monotonic()
    paths: list[str] = arguments.paths
    if not paths and not arguments.env:
        raise ConfigError("nothing to lint: give files or folders", hint="holdfast lint .")
    for path in paths:
        if path != STDIN and not os.path.lexists(path):
            raise ConfigError(f"there is no file or folder {path!r}")
    first = next((path for path in paths if path != STDIN), ".")
    report = _look(paths, arguments, config.find(first))
    _answer(report, arguments, time.monotonic() - began)
    if paths and not report.looked_at and (report.unread or report.refused):
        raise EnvironmentFailure("no file could be read")
    worst = max((one.finding.status.concern for one in report.findings), default=0)
    return int(worst >= FAIL_ON[arguments.fail_on])


def _look(paths: list[str], arguments: argparse.Namespace, wanted: LintConfig) -> LintReport:
    import msgspec

    from holdfast.lint import walk
    from holdfast.lint.session import LintSession

    _check_fault_names(wanted)
    ignore = (*wanted.ignore, *names(arguments.ignore))
    wanted = msgspec.structs.replace(wanted, ignore=ignore)
    select = names(arguments.select) or wanted.select
    session = LintSession(select, wanted, _here(arguments.torch_version or wanted.torch))
    if STDIN in paths:
        session.text(_stdin(arguments.stdin_filename))
    named = [path for path in paths if path != STDIN]
    found = list(walk.files(named, wanted.excludes))
    session.files(found, _progress(len(found)))
    if arguments.env:
        session.environment(_environment())
    report = session.report()
    if paths and not (report.looked_at or report.unread or report.refused):
        where = ", ".join(paths)
        streams.remark(f"nothing to lint in {where}: no script, launch script or document")
    return report


def _check_fault_names(wanted: LintConfig) -> None:
    """A mistake in a file is reported with the name of that file."""
    from holdfast import catalogue

    per_file = (name for names in wanted.per_file_ignores.values() for name in names)
    try:
        catalogue.choose(wanted.select, (*wanted.ignore, *per_file))
    except ConfigError as slip:
        raise ConfigError(f"{wanted.file}: {slip.sentence}", hint=slip.hint) from slip


def _here(torch: str) -> LintingMachine:
    """What is known of this machine without importing torch; scripts may be for another one."""
    import platform
    import socket

    import msgspec

    from holdfast.analysis.source.source import LintingMachine
    from holdfast.check.plan import Flags, make_plan
    from holdfast.check.readers import port, rdma, software

    if torch and not re.match(r"\d{1,4}\.\d{1,4}(?!\d)", torch):
        raise ConfigError(f"the torch version must look like 2.9 or 2.9.1, got {torch!r}")
    plan = make_plan(Flags(), {}, accelerators=0)
    installed = software.find_torch()
    made = LintingMachine(
        torch=torch or (installed.version if installed else ""),
        python=platform.python_version(),
        rdma_devices=_or_unknown(lambda: rdma.read_rdma_devices(plan)),
        interfaces=_or_unknown(lambda: tuple(name for _, name in socket.if_nameindex())),
    )
    ranges = _or_unknown(lambda: port.read_port_ranges(plan))
    if ranges is None:
        return made
    return msgspec.structs.replace(made, ephemeral=(ranges.ephemeral_low, ranges.ephemeral_high))


def _or_unknown(ask: Callable[[], T]) -> T | None:
    """lint works without knowing this machine."""
    try:
        return ask()
    except OSError:
        return None


def _stdin(name: str) -> LintText | UnreadFile | None:
    from holdfast.lint import walk

    if sys.stdin is None:
        raise ConfigError("stdin is closed")
    try:
        return walk.stream(sys.stdin.buffer, name or "stdin")
    except OSError as problem:  # `holdfast lint - < folder`
        raise EnvironmentFailure(f"stdin cannot be read: {problem.strerror}") from problem


def _environment() -> dict[str, str]:
    """What launchers, torch and NCCL read of it, without secrets."""
    from holdfast.check.readers.settings import is_relevant
    from holdfast.run.runs import redact

    shown = redact.from_environment(os.environ)
    return {name: value for name, value in shown.items() if is_relevant(name)}


def _progress(total: int) -> Callable[[int], None]:
    """Reports progress on a terminal, once it takes long."""
    watched = sys.stderr.isatty()
    done = 0
    due = time.monotonic() + PROGRESS_AFTER

    def step(count: int) -> None:
        nonlocal done, due
        done += count
        if watched and time.monotonic() > due:
            streams.remark(f"{done} of {total} files")
            due = time.monotonic() + PROGRESS_AFTER

    return step


def _answer(report: LintReport, arguments: argparse.Namespace, seconds: float) -> None:
    from holdfast.view import document, lint, text

    findings = [one.finding for one in report.findings]
    counts = text.count(findings)
    wanted = "json" if arguments.json else arguments.output_format
    for unread in report.unread:
        streams.remark(f"{text.harmless(unread.path)}: not linted: {text.harmless(unread.why)}")
    for path, language in report.read if arguments.verbose else ():
        streams.remark(f"{text.harmless(path)}: read as {language}")
    for remark in report.remarks:
        streams.remark(text.harmless(remark))
    if wanted == "json":
        unread_files = [(unread.path, unread.why) for unread in report.unread]
        answer = document.lint(findings, counts, report.looked_at, unread_files, seconds)
        streams.answer(answer, encoding=document.ENCODING)
        return
    if wanted == "github":
        for line in lint.refused(findings):  # GitHub has no mark for what could not be looked at
            streams.remark(line)
        if any(finding.status.concern for finding in findings):
            streams.answer(lint.github(findings))
        return
    shown = [lint.Shown(one.finding, one.excerpt) for one in report.findings]
    body = lint.report(shown, colour=text.wants_colour(sys.stdout))
    concerned = {f.place.file for f in findings if f.place and f.status.concern}
    cut = {f.place.file for f in findings if f.place and f.status.value == "skipped"}
    gaps = len(report.unread) + report.refused
    last = lint.summary(
        counts,
        files=len(concerned - {""}),
        looked_at=report.looked_at,
        unread=gaps,
        in_part=max(len(cut) - report.refused, 0),
        environment="" in concerned if concerned else arguments.env,
    )
    if not report.looked_at and not arguments.env:
        last = ""  # nothing was looked at, so nothing is clear
    if body or last:
        streams.answer("\n\n".join(part for part in (body, last) if part))
