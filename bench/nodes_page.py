"""What bench/detect_nodes.py measured, as a page: start, faults, quiet."""

from __future__ import annotations

import datetime as dt
import os
import platform

import msgspec

from tests.run.nodes import fault_rows, quiet_rows, start_rows
from tests.run.nodes.fault_rows import FaultRow
from tests.run.nodes.measure import PATIENCE, Measured
from tests.run.nodes.quiet_rows import Quiet
from tests.run.nodes.scenario import LauncherName
from tests.run.nodes.start_rows import Started

LAUNCHERS: tuple[LauncherName, ...] = ("holdfast", "torchrun")
INTRODUCTION = (
    "Lab hosts (network namespaces of this machine) with one Gloo rank each, unless it says "
    "otherwise; 50 ms a step, a checkpoint every 20 steps; default timeouts (Gloo: half an hour); "
    f"{os.cpu_count()} cores shared by all hosts, Python {platform.python_version()}."
)
START = (
    "Two hosts, seconds from the start of the last node to the first step; or, from the launcher's "
    "first line (torchrun: from its start), to a sentence that names what is wrong. torchrun as "
    "typed, without help."
)
FAULTS = (
    "Four hosts, `--nnodes 2:4 --max-restarts 3` unless it says otherwise. Seconds from the fault "
    "to the sentence on the last of the nodes that are left, and to the first step of the next "
    "attempt. torchrun with `--local-addr` and `--rdzv-conf is_host=`, without which it may not "
    "start; of what it says only lines of its launchers count."
)
QUIET = "Four healthy hosts: no verdict, nothing ended, no restart. `holdfast run` only."


class Results(msgspec.Struct):
    """By `ROW LAUNCHER`."""

    starts: dict[str, Started] = {}
    faults: dict[str, Measured] = {}
    quiet: dict[str, Quiet] = {}

    def is_whole(self) -> bool:
        return (
            all(f"{r.name} {by}" in self.starts for r in start_rows.ROWS for by in LAUNCHERS)
            and all(f"{r.name} {by}" in self.faults for r in fault_rows.ROWS for by in LAUNCHERS)
            and all(f"{r.name} holdfast" in self.quiet for r in quiet_rows.ROWS)
        )

    def wrong(self) -> list[str]:
        every: dict[str, Started | Measured | Quiet] = {**self.starts, **self.faults, **self.quiet}
        return [name for name, one in every.items() if name.endswith("holdfast") and one.problems]


# --- in words ------------------------------------------------------------------------------------


def start_words(seen: Started) -> str:
    if seen.first_step is not None:
        said = f"{seen.first_step:.1f} s"
    elif times := [seconds for seconds in seen.said.values() if seconds is not None]:
        said = f"said after {max(times):.1f} s"
    elif seen.ended is not None:
        said = f"ended after {seen.ended:.0f} s"
    else:
        said = f"nothing in {start_rows.LONGEST[seen.launcher]:.0f} s"
    return said + _problems(seen.problems)


def fault_words(row: FaultRow, seen: Measured) -> str:
    if seen.started is None:
        said = "does not start"
    elif seen.launcher == "holdfast":
        times = [seconds for seconds in seen.named.values() if seconds is not None]
        nodes = f"{len(times)} of {len(seen.named)} nodes"
        said = f"{max(times):.1f} s on {nodes}" if times else "nothing right said"
    elif seen.first_word is None:
        said = f"nothing in {PATIENCE:.0f} s"
    else:
        times = [seconds for seconds in seen.named.values() if seconds is not None]
        named = f"node named after {min(times):.1f} s" if times else "no node named"
        said = f"first word after {seen.first_word:.1f} s, {named}"
    return "; ".join([said, *_rest(row, seen)]) + _problems(seen.problems)


def _rest(row: FaultRow, seen: Measured) -> list[str]:
    parts = []
    if seen.resumed is not None:
        again = max(0, seen.repeated)  # those that were taken after the signal are saved too
        parts.append(f"{seen.world} ranks go on after {seen.resumed:.1f} s, {again} steps again")
    elif row.after == "stops" or seen.launcher == "torchrun":
        parts.append("ended" if seen.ended else f"still there after {PATIENCE:.0f} s")
    if seen.orphans:
        parts.append(f"processes left on {', '.join(seen.orphans)}")
    return parts


def quiet_words(seen: Quiet) -> str:
    said = "quiet" if not seen.notices else "<br>".join(f"notice {one}" for one in seen.notices)
    return f"{said} ({seen.seconds:.0f} s)" + _problems(seen.problems)


def _problems(found: list[str]) -> str:
    return "".join(f"<br>**{problem}**" for problem in found)


# --- the page ------------------------------------------------------------------------------------


def page(found: Results) -> str:
    wrong = found.wrong()
    rows = len(start_rows.ROWS) + len(fault_rows.ROWS) + len(quiet_rows.ROWS)
    lines = [
        f"# A training on several hosts, {dt.datetime.now(dt.timezone.utc):%Y-%m-%d}",
        "",
        INTRODUCTION,
        "",
        f"holdfast: {rows - len(wrong)} of {rows} rows as they should be.",
        "",
        "## Start",
        "",
        START,
        "",
        *_head("start", "holdfast run", "torchrun"),
    ]
    for start in start_rows.ROWS:
        cells = [start_words(found.starts[f"{start.name} {by}"]) for by in LAUNCHERS]
        lines.append(_line(start.what, *cells))
    lines += ["", "## Faults", "", FAULTS, "", *_head("fault", "holdfast run", "torchrun")]
    for row in fault_rows.ROWS:
        cells = [fault_words(row, found.faults[f"{row.name} {by}"]) for by in LAUNCHERS]
        lines.append(_line(row.what, *cells))
    lines += ["", "What holdfast said:", ""]
    said = {row.name: found.faults[f"{row.name} holdfast"].sentence for row in fault_rows.ROWS}
    lines += [f"- {name}: `{sentence}`" for name, sentence in said.items() if sentence]
    lines += ["", "## Quiet", "", QUIET, "", *_head("what is odd", "holdfast run")]
    lines += [
        _line(row.what, quiet_words(found.quiet[f"{row.name} holdfast"])) for row in quiet_rows.ROWS
    ]
    return "\n".join([*lines, ""])


def _head(*names: str) -> list[str]:
    return [_line(*names), "|" + "---|" * len(names)]


def _line(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
