"""Findings and pages for a person: reads well without colour and in a pipe."""

from __future__ import annotations

import os
import re
import statistics
import textwrap
from collections.abc import Iterable, Sequence
from typing import TextIO

from holdfast import text
from holdfast.analysis.machine import MachineFacts, Smoke, Software
from holdfast.analysis.machine.nccl_links import in_words
from holdfast.findings import Evidence, Finding, Page, Status
from holdfast.text import shorten, visible

COLOURS = {
    Status.ERROR: "\033[1;31m",
    Status.WARNING: "\033[1;33m",
    Status.NOTE: "\033[1;36m",
    Status.SKIPPED: "\033[2m",
    Status.OK: "\033[32m",
}
PLAIN = "\033[0m"
LONGEST = 1000
"""characters of a text from outside; a variable may hold a whole file"""
WIDTH = 100
COMMAND = re.compile(r"`[^`]*`")
GLUE = "\ue000"
"""a space at which no line is broken; of the private use area, so nothing else prints it"""
NARROWEST, WIDEST = 60, 110
"""columns: prose is harder to read beyond them"""


def wants_colour(stream: TextIO) -> bool:
    """By the common conventions: a terminal that is not dumb, and NO_COLOR not set."""
    return (
        stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM", "") != "dumb"
    )


def harmless(text: str) -> str:
    """Foreign text (command lines, log lines) must not drive the terminal nor fake a line."""
    one_line = " ".join(text.replace("\t", " ").splitlines())
    shown = re.sub(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]", "�", visible(one_line))
    return shorten(shown, LONGEST)


def banner(facts: MachineFacts, *, port: bool = True) -> str:
    """One line: what was looked at."""
    parts = []
    if isinstance(facts.software, Software):
        build = facts.software.torch_cuda and f"CUDA {facts.software.torch_cuda}"
        parts += [
            f"Python {facts.software.python}",
            f"torch {facts.software.torch} ({build or 'CPU build'})"
            if facts.software.torch
            else "no torch for this Python",
        ]
    plan = facts.plan
    if plan.multi_node:
        elastic = plan.max_nodes > plan.min_nodes
        nodes = f"{plan.min_nodes} to {plan.max_nodes}" if elastic else f"{plan.max_nodes}"
        ranks = "1 rank" if plan.nproc == 1 else f"{plan.nproc} ranks"
        parts.append(f"{nodes} machines with {ranks} each")
    elif plan.nproc > 1:
        parts.append(f"{plan.nproc} ranks")
    if port:
        parts.append(f"port {plan.port}" if plan.port else "port chosen by the launcher")
    return f"{harmless(facts.host)}: {', '.join(parts)}"


def width_of(columns: int) -> int:
    """How wide prose is on a terminal of so many columns."""
    return max(NARROWEST, min(columns, WIDEST)) - 1


def finding(item: Finding, *, colour: bool, width: int = WIDTH) -> str:
    """A paragraph: what was seen, the evidence, what it means, what to do.

    Prose is wrapped, since it is read; evidence stays on one line, so that `grep` finds it whole.
    """
    head = f"{item.status.value}[{item.code}]"
    if item.status is Status.SKIPPED:
        gap = item.reason if item.applies else f"does not apply: {item.reason}"
        lines = [wrapped(f"{head} {item.slug}: {gap}", width, rest="  ")]
    else:
        lines = [wrapped(f"{head} {item.slug}: {item.summary}", width, rest="  ")]
        lines += [f"  --> {_place(evidence, item)}" for evidence in item.evidence]
        lines += [wrapped(f"  = {item.reason}", width, rest="    ")] if item.reason else []
        lines += [wrapped(f"help: {item.fix}", width, rest="      ")] if item.fix else []
    if colour:
        lines[0] = f"{COLOURS[item.status]}{head}{PLAIN}{lines[0].removeprefix(head)}"
    return "\n".join(lines)


def wrapped(words: str, width: int, *, rest: str) -> str:
    """As many lines as it takes; what is pasted, a `command` or a path, stays on one line."""
    indent = words[: len(words) - len(words.lstrip())]
    glued = COMMAND.sub(lambda found: found[0].replace(" ", GLUE), harmless(words.strip()))
    return textwrap.fill(
        glued,
        width,
        initial_indent=indent,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    ).replace(GLUE, " ")


def _place(evidence: Evidence, item: Finding) -> str:
    where = evidence.source + (f":{evidence.line}" if evidence.line else "")
    quote = harmless(evidence.quote)
    host = harmless(evidence.host or item.host)
    return f"{host}: {quote}" + (f" ({harmless(where)})" if where else "")


def report(findings: Sequence[Finding], *, verbose: bool, colour: bool, width: int = WIDTH) -> str:
    """The worst first; passed and not applicable ones only when asked for."""
    order = [Status.ERROR, Status.WARNING, Status.NOTE, Status.SKIPPED, Status.OK]
    blocks = []
    for status in order:
        chosen = [f for f in findings if f.status is status and (verbose or _speaks_for_itself(f))]
        paragraphs = [finding(item, colour=colour, width=width) for item in chosen]
        short = status in (Status.SKIPPED, Status.OK)
        blocks += ["\n".join(paragraphs)] if short and paragraphs else paragraphs
    return "\n\n".join(blocks)


def _speaks_for_itself(item: Finding) -> bool:
    return item.status is not Status.OK and item.applies


def count(findings: Iterable[Finding]) -> dict[str, int]:
    """How many findings have which status; `skipped` counts only what we could not look at."""
    counts = dict.fromkeys(("ok", "note", "warning", "error", "skipped", "not_applicable"), 0)
    for item in findings:
        counts[item.status.value if item.applies else "not_applicable"] += 1
    return counts


def summary(counts: dict[str, int], seconds: float) -> str:
    """The last line: '31 passed, 1 error, 1 skipped in 0.4s'."""
    parts = [f"{counts['ok']} passed"]
    parts += [
        f"{counts[name]} {name}{'s' if counts[name] > 1 else ''}"
        for name in ("error", "warning", "note")
        if counts[name]
    ]
    if counts["skipped"]:
        parts.append(f"{counts['skipped']} skipped")
    if counts["not_applicable"]:
        parts.append(f"{counts['not_applicable']} not applicable")
    return f"{', '.join(parts)} in {seconds:.1f}s"


def page(item: Page) -> str:
    """The whole story of one fault."""
    sections = [
        ("What you see", item.see),
        ("Why it happens", item.why),
        ("How to be sure", item.sure),
        ("Fix", item.fix),
        ("Known limits", item.limits),
        ("Example", item.example),
        ("See also", "\n".join(f"holdfast explain {slug}" for slug in item.related)),
        ("Sources", "\n".join(item.sources)),
    ]
    title = f"{item.code} {item.slug}: {item.title}"
    body = "\n\n".join(f"{name}\n{textwrap.indent(text, '  ')}" for name, text in sections if text)
    return f"{title}\n\n{body}"


def page_list(pages: Iterable[Page]) -> str:
    """One line each."""
    return "\n".join(f"{item.code}  {item.slug:<24}  {item.title}" for item in pages)


def smoke_table(facts: MachineFacts) -> str:
    """The smoke test's stages and ladder; rank lines were narrated as they came."""
    if not isinstance(facts.smoke, Smoke):
        return ""
    lines = [f"smoke test, {text.counted(facts.smoke.world, 'rank')}"]
    for stage in facts.smoke.stages:
        line = f"  {stage.name:<9} {stage.status:<8} {stage.seconds:6.2f} s"
        lines.append(f"{line}  {harmless(stage.reason)}".rstrip())
        rungs = [rung for rung in facts.smoke.ladder if rung.stage == stage.name]
        lines += [
            f"    all_reduce {text.size(rung.size):>8}  {rung.seconds * 1e3:9.2f} ms  "
            f"{rung.bandwidth / 1e9:7.3f} GB/s  {'sum right' if rung.correct else 'SUM WRONG'}"
            for rung in rungs
        ]
    return "\n".join([*lines, *_transport_lines(facts.smoke)])


def _transport_lines(smoke: Smoke) -> list[str]:
    """What NCCL used, how fast pairs of ranks are, and how it does without its best transport."""
    if not smoke.links:
        return []
    lines = [f"    transport {harmless(in_words(smoke.links))}"]
    if smoke.pairs:
        speeds = sorted(pair.bandwidth for pair in smoke.pairs)
        slowest, usual = speeds[0], statistics.median(speeds)
        lines.append(
            f"    {len(speeds)} pairs one by one: median {text.bandwidth(usual)}, slowest "
            f"{text.bandwidth(slowest)}"
        )
    for one in smoke.rounds:
        said = f"{in_words(one.links)}, {text.bandwidth(one.bandwidth)}"
        words = said if one.status == "ok" else one.reason
        lines.append(f"  {one.name:<9} {one.status:<8} {one.seconds:6.2f} s  {harmless(words)}")
    return lines
