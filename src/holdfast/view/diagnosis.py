"""A diagnosis for a person: the sentence first, then what it rests on, then what to do.

Prose is wrapped, since it is read; what is copied or searched for (a quoted line with its place, a
command) stays on one line, so that `grep` and a double click find it whole.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from holdfast.findings import Culprit, Diagnosis, Evidence, Grade, RuleFinding
from holdfast.text import ranks, shorten
from holdfast.view.text import harmless

QUOTED = 160
"""characters of a quoted line; the file and line say where the rest is"""
WIDTH = 100
REMARKS = 6
GRADE = max(len(grade.value) for grade in Grade)
"""width of that column"""
SEVERITY = len("warning")

UNEXPLAINED = (
    "Something failed, and no fault in the catalogue explains it. The earliest signs of trouble "
    "are below."
)
HEALTHY = "Nothing failed here: no error, timeout, lost peer or bad exit was found."
NO_JOB = (
    "No trace of a distributed job was found: no rank, launcher or group, and no error, timeout, "
    "lost peer or bad exit."
)
HEALTHY_IN_PART = (
    "Nothing failed in what could be read: no error, timeout, lost peer or bad exit was found. "
    "Some of it could not be read."
)
ALIVE_AND_WELL = (
    "Nothing wrong was seen in this job, watched from outside for a few seconds. Where each rank "
    "is, is shown below."
)

RAS_IS_CONTENT = (
    "NCCL's RAS finds nothing wrong: every process of the job answers, none reports an error, and "
    "no rank stays behind. It does not see whether collectives finish."
)


def report(
    diagnoses: Sequence[Diagnosis],
    *,
    failed: bool,
    anomalies: Sequence[Evidence],
    remarks: Sequence[str],
    places: Sequence[Evidence] = (),
    ras: Sequence[str] = (),
    rules: Sequence[RuleFinding] = (),
    undecided: str = "",
) -> str:
    """`places`: where each rank of a running job is; nothing failed there, at most it hangs.
    `ras`: what NCCL itself says of one. `rules`: what the user's own found.
    `undecided`: what is odd about a job where no rank can be named, and nothing failed."""
    blocks = []
    if diagnoses:
        blocks.append(leading(diagnoses[0]))
        if others := diagnoses[1:]:
            blocks.append("\n".join(["also possible:", *map(in_short, others)]))
    elif failed:
        blocks.append(_wrapped(UNEXPLAINED))
    else:
        healthy = HEALTHY_IN_PART if remarks else undecided or HEALTHY
        alive = undecided or ALIVE_AND_WELL
        blocks.append(_wrapped(alive if places else RAS_IS_CONTENT if ras else healthy))
    shown = set(diagnoses[0].evidence if diagnoses else ())
    if early := [item for item in anomalies if item not in shown]:
        blocks.append("\n".join(["earliest signs of trouble:", *_listed(early)]))
    named = {one.slug for one in diagnoses}
    if context := [one for one in rules if one.rule not in named]:
        blocks.append("\n".join(["your rules:", *map(_rule, context)]))
    if places:
        blocks.append("\n".join(["where each rank is:", *map(_place, places)]))
    if ras:
        blocks.append(
            "\n".join(["what NCCL's RAS says:", *(_wrapped(o, "  ", "    ") for o in ras)])
        )
    if remarks:
        blocks.append("\n".join(_remarks(remarks)))
    return "\n\n".join(blocks)


def leading(item: Diagnosis) -> str:
    lines = [
        f"{item.slug}[{item.code}] {_who(item.culprit)}({item.grade.value})",
        _wrapped(item.reason, "  "),
    ]
    lines += [f"  --> {evidence(one)}" for one in item.evidence]
    if item.victims:
        lines.append(_wrapped(f"victims: {ranks(item.victims)}", "  ", "    "))
    lines += [_wrapped(f"ruled out: {one}", "  ", "    ") for one in item.ruled_out]
    lines += [_wrapped(f"not known: {one}", "  ", "    ") for one in item.unknown]
    if item.fix:
        lines.append(_wrapped(f"help: {item.fix}", "", "      "))
    if item.next:
        lines.append(f"next: {harmless(item.next)}")
    return "\n".join(lines)


def in_short(item: Diagnosis) -> str:
    head = f"{item.grade.value:<{GRADE}}  {item.slug}[{item.code}] {_who(item.culprit)}"
    return _wrapped(f"{head.rstrip()}: {item.reason}", "  ", " " * (4 + GRADE))


def evidence(item: Evidence) -> str:
    where = item.source + (f":{item.line}" if item.line else "")
    rank = f"rank {item.rank}: " if item.rank is not None else ""
    text = _cut(item.quote)
    return f"{harmless(where)}: {rank}{text}" if where else f"{rank}{text}"


def _rule(item: RuleFinding) -> str:
    head = _wrapped(f"{item.severity:<{SEVERITY}}  {item.rule}: {item.reason}", "  ", "    ")
    shown = [f"    --> {evidence(one)}" for one in item.evidence]
    helps = [_wrapped(f"help: {item.fix}", "    ", "          ")] if item.fix else []
    return "\n".join([head, *shown, *helps])


def _listed(items: Sequence[Evidence]) -> list[str]:
    return [f"  {evidence(item)}" for item in items]


def _place(item: Evidence) -> str:
    return f"  rank {item.rank}: {_cut(item.quote)} ({harmless(item.source)})"


def _remarks(remarks: Sequence[str]) -> list[str]:
    shown = [f"not read: {harmless(remark)}" for remark in remarks[:REMARKS]]
    left = len(remarks) - len(shown)
    return [*shown, f"not read: {left} more"] if left else shown


def _cut(quote: str) -> str:
    return shorten(harmless(quote), QUOTED)


def _wrapped(text: str, first: str = "", rest: str | None = None) -> str:
    """Words longer than a line (paths, commands) are never broken."""
    return textwrap.fill(
        harmless(text),
        WIDTH,
        initial_indent=first,
        subsequent_indent=first if rest is None else rest,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _who(culprit: Culprit | None) -> str:
    if culprit is None:
        return ""
    details = []
    if culprit.host:
        details.append(f"host {harmless(culprit.host)}")
    if culprit.pid:
        details.append(f"pid {culprit.pid}")
    inside = ", ".join(details)
    if culprit.rank is not None:
        return f"rank {culprit.rank} " + (f"({inside}) " if inside else "")
    if culprit.what:
        return f"{harmless(culprit.what)} "
    return f"{inside} " if inside else ""
