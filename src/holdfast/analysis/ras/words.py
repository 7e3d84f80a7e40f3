"""What RAS says of a job that runs, in lines for a reader."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast import text
from holdfast.analysis.ras import judge
from holdfast.analysis.ras.answer import RasAnswer, RasCommunicator

SHOWN = 8
"""communicators"""


def summary(answers: Sequence[RasAnswer]) -> list[str]:
    """'NCCL 2.28.9: 3 processes on 1 host; all answer', and a line for each communicator."""
    newest, first = answers[-1], answers[0]
    many = newest.processes
    size = f"{many} process{'' if many == 1 else 'es'}"
    hosts = f" on {text.counted(len(newest.hosts), 'host')}" if newest.hosts else ""
    missing = len(newest.silent)
    answer = f"{missing} of them {'does' if missing == 1 else 'do'} not answer" if missing else (
        "all answer"
    )  # fmt: skip
    lines = [f"NCCL {newest.nccl or '(unknown version)'}: {size}{hosts}; {answer}"]
    before = {one.name: one for one in first.communicators}
    seconds = newest.at - first.at
    lines += [
        _line(one, before.get(one.name) if len(answers) > 1 else None, seconds)
        for one in newest.communicators[:SHOWN]
    ]
    if len(newest.communicators) > SHOWN:
        lines.append(f"{len(newest.communicators) - SHOWN} more communicators")
    if len(answers) > 1 and not missing and not judge.gaps(newest):
        lines += _standstill(first, newest, seconds)
    return lines


def _line(one: RasCommunicator, before: RasCommunicator | None, seconds: float) -> str:
    counts = [
        f"{op} {_range(spread)}{_since(before, op, spread, seconds)}"
        for op, spread in one.launched.items()
        if any(spread)
    ]
    told = ", ".join(counts) or "nothing launched yet"
    size = f"{text.counted(one.size, 'rank')}: " if one.size else ""
    return f"communicator {one.name}, {size}{told}"


def _range(spread: dict[int, int]) -> str:
    low, high = min(spread), max(spread)
    return str(high) if low == high else f"{low} to {high}"


def _since(before: RasCommunicator | None, op: str, spread: dict[int, int], seconds: float) -> str:
    old = before.launched.get(op) if before else None
    if not old:
        return ""
    more = max(spread) - max(old)
    return f" (+{more} in {text.elapsed(seconds)})"


def _standstill(first: RasAnswer, newest: RasAnswer, seconds: float) -> list[str]:
    """RAS counts launches, not what has finished: equal counts do not show that a job is well."""
    if judge.moved(first, newest) is not False:
        return []
    line = (
        f"no rank launched a collective in {text.elapsed(seconds)}, and all have launched the same:"
        " the job is between two collectives, or the GPUs or the network do not finish one"
    )
    return [line]
