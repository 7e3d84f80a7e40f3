"""A diagnosis for a person: the sentence first, then what it rests on, then what to do."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.model import Culprit, Diagnosis, Evidence
from holdfast.view.text import harmless
from holdfast.wording import numbers

QUOTED = 300
"""characters of a quoted line; the file and line say where the rest is"""


def report(
    diagnoses: Sequence[Diagnosis],
    *,
    failed: bool,
    anomalies: Sequence[Evidence],
    remarks: Sequence[str],
) -> str:
    blocks = []
    if diagnoses:
        blocks.append(leading(diagnoses[0]))
        if others := diagnoses[1:]:
            blocks.append("\n".join(["also possible:", *map(in_short, others)]))
    elif failed:
        blocks.append(
            "Something failed, and nothing that holdfast knows explains it.\n"
            "Nobody is blamed without evidence; the earliest signs of trouble are below."
        )
    else:
        blocks.append("Nothing failed here: no error, timeout, lost peer or bad exit was found.")
    if anomalies:
        title = "earliest signs of trouble:"
        blocks.append("\n".join([title, *(f"  {evidence(item)}" for item in anomalies)]))
    if remarks:
        blocks.append("\n".join(f"not read: {harmless(remark)}" for remark in remarks))
    return "\n\n".join(blocks)


def leading(item: Diagnosis) -> str:
    lines = [
        f"{item.slug}[{item.code}] {_who(item.culprit)}({certainty(item.confidence)})",
        f"  {harmless(item.reason)}",
    ]
    lines += [f"  --> {evidence(one)}" for one in item.evidence]
    if item.victims:
        plural = "s" if len(item.victims) > 1 else ""
        lines.append(f"  victims: rank{plural} {numbers(item.victims)}")
    lines += [f"  ruled out: {harmless(one)}" for one in item.ruled_out]
    lines += [f"  not known: {harmless(one)}" for one in item.unknown]
    if item.fix:
        lines.append(f"help: {harmless(item.fix)}")
    if item.next:
        lines.append(f"next: {harmless(item.next)}")
    return "\n".join(lines)


def in_short(item: Diagnosis) -> str:
    head = f"  {item.confidence * 100:3.0f} %  {item.slug}[{item.code}] {_who(item.culprit)}"
    return f"{head.rstrip()}: {harmless(item.reason)}"


def certainty(confidence: float) -> str:
    words = "sure" if confidence > 0.8 else "likely" if confidence >= 0.5 else "possible"
    return f"{words}, {confidence * 100:.0f} %"


def evidence(item: Evidence) -> str:
    where = item.source + (f":{item.line}" if item.line else "")
    rank = f"rank {item.rank}: " if item.rank is not None else ""
    text = harmless(item.quote)
    cut = text if len(text) <= QUOTED else text[: QUOTED - 1] + "…"
    return f"{harmless(where)}: {rank}{cut}" if where else f"{rank}{cut}"


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
