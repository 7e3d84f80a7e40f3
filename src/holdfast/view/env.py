"""Settings and timeouts for a person: grouped, and wrapped to what the terminal is wide."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence

from holdfast.analysis.variables.status import STAGES, TYPED, SettingStatus, Timeout, VariableInfo
from holdfast.analysis.variables.table import Variable, tables
from holdfast.findings import Finding
from holdfast.text import exact_duration, shorten
from holdfast.view import text

DETAIL = "      "
MANY = ("Slurm", "schedulers", "MPI")
"""readers that set dozens of variables: only those with a row of their own are shown"""
LONGEST_VALUE = 60


def settings(
    judged: Sequence[SettingStatus], lost: Sequence[SettingStatus], *, width: int, everything: bool
) -> str:
    """By the program that reads them; what speaks for itself takes two lines."""
    if not judged and not lost:
        return "no variable of NCCL, torch, a launcher or a scheduler is set"
    groups: dict[str, list[SettingStatus]] = {}
    for one in (*judged, *lost):
        groups.setdefault(_reader(one), []).append(one)
    blocks = [
        "\n".join([reader, *_group(reader, groups[reader], width, everything=everything)])
        for reader in sorted(groups, key=_place)
    ]
    return "\n\n".join(blocks)


def _reader(one: SettingStatus) -> str:
    if one.row is None:
        return "unknown to holdfast"
    return "read by no program" if not one.row.is_read else one.row.reader


def _place(reader: str) -> int:
    """In the order of the tables."""
    readers = tables().readers
    return readers.index(reader) if reader in readers else len(readers)


def _group(
    reader: str, members: list[SettingStatus], width: int, *, everything: bool
) -> Iterator[str]:
    hidden = []
    told: dict[str, str] = {}
    for one in sorted(members, key=lambda m: m.name):
        of_family = one.row is not None and one.row.name.endswith("*")
        if reader in MANY and of_family and not everything and not one.status.concern:
            hidden.append(one.name)
            continue
        yield from _setting(one, width, brief=reader in MANY, told=told.get(one.why, ""))
        told.setdefault(one.why, one.name)
    if hidden:
        yield f"  and {len(hidden)} more, from {hidden[0]} to {hidden[-1]}: see them with --all"


def _setting(one: SettingStatus, width: int, *, brief: bool, told: str) -> Iterator[str]:
    """`told`: the setting above that the same was said of."""
    value = shorten(text.harmless(one.value), LONGEST_VALUE)
    yield f"  {f'{text.harmless(one.name)}={value}':<46} {one.verdict.value}"
    if one.why and told and one.status.concern:
        yield f"{DETAIL}see {told}"
        return
    if one.why or not brief:
        yield from _wrapped("; ".join(part for part in _details(one) if part), width)
    if one.fix and one.status.concern:
        yield from _wrapped(f"help: {text.harmless(one.fix)}", width)


def _details(one: SettingStatus) -> Iterator[str]:
    yield text.harmless(one.why) or (one.row.effect if one.row else "")
    if one.origin != "environment":
        yield _where(text.harmless(one.origin))
    if one.read_by:
        more = f" and {len(one.read_by) - 1} more" if len(one.read_by) > 1 else ""
        yield f"read by {one.read_by[0]}{more}"


def _where(origin: str) -> str:
    if ":" in origin:
        return f"set at {origin}"
    return f"on the {origin}" if origin == TYPED else ""


def _wrapped(words: str, width: int, *, indent: str = DETAIL) -> list[str]:
    return textwrap.wrap(
        words,
        width,
        initial_indent=indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def timeouts(found: Sequence[Timeout], *, width: int) -> str:
    lines = ["timeouts: every limit that can end or hold this job"]
    for stage, title in STAGES.items():
        members = [one for one in found if one.stage == stage]
        lines += [f"  {title}"] if members else []
        for one in members:
            mark = "" if one.sure else " ?"
            value = f"{say(one.seconds, sure=one.sure)}{mark}"
            lines.append(f"    {one.name:<34} {value:<9} {text.harmless(one.origin)}")
            more = f"; {one.remark}" if one.remark else ""
            lines += _wrapped(f"{one.does}{more}", width, indent=DETAIL + "  ")
    return "\n".join(lines)


def say(seconds: float | None, *, sure: bool) -> str:
    return "unknown" if seconds is None and not sure else exact_duration(seconds)


def order(findings: Sequence[Finding], *, colour: bool, width: int) -> str:
    if not findings:
        return "order: fine, as far as it is known (connections < groups < watchers < scheduler)"
    return "\n\n".join(text.finding(one, colour=colour, width=width) for one in findings)


def remarks(said: Iterable[str], *, width: int) -> str:
    lines = [textwrap.wrap(f"note: {one}", width, subsequent_indent="      ") for one in said]
    return "\n".join(line for block in lines for line in block)


# --- one variable, and the whole table ------------------------------------------------------------


def one(answer: VariableInfo, *, width: int) -> str:
    """All that is known of one variable."""
    row: Variable | None = answer.row
    lines = [text.harmless(answer.name)]
    if row is None:
        lines += _wrapped("not in holdfast's table", width)
    else:
        lines += _fields(row, answer, width)
    lines += _now(answer, width)
    for other, how in answer.bears_on:
        lines += _field("see also", f"{other}: {how}", width)
    if answer.near:
        lines += _field("meant", ", ".join(answer.near[:8]) + "?", width)
    return "\n".join(lines)


def _fields(row: Variable, answer: VariableInfo, width: int) -> Iterator[str]:
    yield from _field("effect", row.effect, width)
    if row.is_read:
        yield from _field("read by", row.reader, width)
        yield from _field("default", row.default or "not set", width)
        yield from _field("versions", _versions(row, answer.version), width)
    else:
        yield from _field("read by", "no program", width)
    if row.instead:
        yield from _field("instead", f"use {row.instead}", width)
    if answer.spellings:
        yield from _field("older names", ", ".join(answer.spellings), width)
    if row.name.endswith("*"):
        yield from _field("family", row.name, width)
    if answer.read_by:
        yield from _field("proof", f"the name is in {', '.join(answer.read_by)}", width)
    elif answer.searched:
        searched = ", ".join(answer.searched)
        yield from _field("proof", f"the name is in none of {searched}", width)
    yield from _field("source", row.source, width)


def _versions(row: Variable, read_from: str) -> str:
    since = f"since {row.since}" if row.since else ""
    until = f"until {row.until}" if row.until else ""
    table = f"table of {read_from}" if read_from else ""
    return ", ".join(part for part in (since, until, table) if part) or "not recorded"


def _now(answer: VariableInfo, width: int) -> Iterator[str]:
    now = answer.now
    if now is None:
        yield from _field("now", "not set here", width)
        return
    where = f"{text.harmless(now.value)} ({now.origin}): {now.verdict.value}"
    yield from _field("now", where, width)
    if now.why:
        yield from _field("", text.harmless(now.why), width)
    if now.fix:
        yield from _field("help", text.harmless(now.fix), width)


def _field(name: str, words: str, width: int) -> list[str]:
    return textwrap.wrap(
        f"{words}",
        width,
        initial_indent=f"  {name:<12}",
        subsequent_indent=" " * 14,
        break_long_words=False,
        break_on_hyphens=False,
    )


def table(rows: Iterable[Variable], *, width: int) -> str:
    """Every row, one line or more each, by reader."""
    lines: list[str] = []
    reader = ""
    for row in rows:
        if row.reader != reader:
            reader = row.reader
            title = "read by no program" if not row.is_read else reader
            lines += ["", title] if lines else [title]
        default = f" (default {row.default})" if row.default else ""
        lines += textwrap.wrap(
            f"{row.name}: {row.effect}{default}",
            width,
            initial_indent="  ",
            subsequent_indent=DETAIL,
            break_long_words=False,
            break_on_hyphens=False,
        )
    return "\n".join(lines)
