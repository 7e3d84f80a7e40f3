"""Write what drills measured into proof/drill-DATE.md and .json, and the table in README.md.

    python -m tools.write_drill_table "DDP, 4 ranks=drills/ID/report.json" "FSDP2, 4 ranks=…" …

The first job is the one that the README shows, with the faults that only later ones could have. A
test compares README.md with the newest proof: neither is typed.
"""

from __future__ import annotations

import argparse
import sys
import textwrap
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from holdfast import text
from holdfast.analysis.drill.outcome import DrillReport, DrillRow
from holdfast.errors import ConfigError
from holdfast.view import document, drill_table
from holdfast.view.drill_table import seconds

ROOT = Path(__file__).parent.parent
README, PROOF = ROOT / "README.md", ROOT / "proof"
BEGIN, END = "<!-- drills: written by tools/write_drill_table.py -->\n", "<!-- end of drills -->\n"
BEFORE = "## What it does\n"
TITLE = "## What happens to [examples/train.py](examples/train.py) when …\n"
HEADS = ("fault", "noticed after", "named", "training again after", "steps repeated", "result")
SHOWN = {
    "rank-killed": "a rank is killed",
    "native-crash": "a rank crashes in native code",
    "python-exception": "a rank raises an exception",
    "rank-stuck": "a rank hangs in Python",
    "gil-held": "native code holds a rank's GIL",
    "rank-frozen": "a rank is stopped (SIGSTOP)",
    "host-oom": "a rank exceeds its memory limit",
    "disk-full": "the disk of the checkpoints is full",
    "checkpoint-corrupt": "bits of the newest checkpoint flip",
    "checkpoint-corrupt/truncated": "the newest checkpoint is cut short",
    "checkpoint-incomplete": "a rank is killed while it saves",
    "launcher-killed": "the launcher is killed",
    "external-sigterm": "the launcher is told to stop",
    "preempted": "the scheduler preempts the job",
    "node-lost": "a node is lost",
    "network-partition": "the network is split",
}
"""what the README shows, in this order; every broken one besides"""

Reports = Mapping[str, DrillReport]
"""name of the job -> what was measured"""


def readme_table(reports: Reports, date: str) -> str:
    rows = dict(_shown(reports))
    lines = [
        "| when … | noticed after | named | training again after | steps repeated | result |",
        "|---|---|---|---|---|---|",
        *(_line((words, *_cells(row))) for words, row in rows.items()),
        "",
        *_in_all(reports),
        "",
        f"[All of them](proof/drill-{date}.md), and [how to drill your own job](docs/drill.md).",
    ]
    return "\n".join(lines) + "\n"


def _in_all(reports: Reports) -> list[str]:
    """How many drills, on which jobs, and in a sentence each what was broken."""
    tried = sum(map(_tried, reports.values()))
    broken = [(name, row) for name, report in reports.items() for row in report.broken]
    kept = "All" if not broken else f"{tried - len(broken)} of"
    jobs = "; ".join(f"{_tried(report)} on {name}" for name, report in reports.items())
    lines = [f"{kept} {text.counted(tried, 'drill')} kept every promise: {jobs}."]
    for name, row in broken:
        seen = "; ".join(f"{one.promise}: {one.seen}" for one in row.broken)
        lines.append(f"Broken: {row.drill} on {name} ({seen}).")
    return [line for one in lines for line in textwrap.wrap(one, 100, break_on_hyphens=False)]


def _shown(reports: Reports) -> list[tuple[str, DrillRow]]:
    """Each from the first job that tried it; what was broken on any job is never left out."""
    found = []
    for name, words in SHOWN.items():
        tried = [row for report in reports.values() for row in report.rows
                 if row.drill == name and row.status != "skipped"]  # fmt: skip
        found += [(words, tried[0])] if tried and tried[0].status != "broken" else []
    broken = [(f"{row.drill}, {job}", row) for job, report in reports.items()
              for row in report.broken]  # fmt: skip
    return found + broken


def _tried(report: DrillReport) -> int:
    return len(report.rows) - drill_table.counts(report)["skipped"]


def _cells(row: DrillRow) -> tuple[str, ...]:
    return (
        seconds(row.noticed),
        _named(row),
        seconds(row.recovered),
        "0" if row.repeated is None else str(row.repeated),
        _result(row),
    )


def _named(row: DrillRow) -> str:
    word = drill_table.naming(row)
    return f"**{word}** {row.named}".rstrip() if row.named_right is False else row.named or word


def _result(row: DrillRow) -> str:
    if row.status == "broken":
        return f"**broken**: {', '.join(dict.fromkeys(one.promise for one in row.broken))}"
    return drill_table.worst((row.data, row.loss, row.weights))


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


# --- the proof -----------------------------------------------------------------------------------


def proof(reports: Reports, date: str) -> str:
    lines = [
        f"# Drills of {date}",
        "",
        "Written by tools/write_drill_table.py from what `holdfast drill --json` printed. What the",
        "columns mean: [docs/drill.md](../docs/drill.md).",
    ]
    for name, report in reports.items():
        lines += ["", f"## {name}", "", *_about(report), "", *_table(report), *_notes(report)]
    return "\n".join(lines) + "\n"


def _about(report: DrillReport) -> list[str]:
    versions = ", ".join(f"{name} {value}" for name, value in report.versions.items())
    about = (
        f"`{drill_table.command_line(report)}`: {text.counted(report.ranks, 'rank')}, "
        f"{text.counted(report.steps, 'step')}, {seconds(report.reference_seconds)} undisturbed, "
        f"patience {text.exact_duration(report.patience)}, runner {report.runner}; {versions}."
    )
    whole = drill_table.last_line(msgspec.structs.replace(report, page=""))
    return [about, "", f"**{whole}.**"]


def _table(report: DrillReport) -> list[str]:
    heads = ("drill", *HEADS[1:], "left behind", "promise")
    rows = [
        _line((row.drill, *_cells(row), str(len(row.left) or "nothing"), row.status))
        for row in report.rows
        if row.status != "skipped"
    ]
    return [_line(heads), f"|{'---|' * len(heads)}", *rows]


def _notes(report: DrillReport) -> list[str]:
    notes = [f"- {row.drill}, broken {one.promise}: {one.seen}" for row in report.broken
             for one in row.broken]  # fmt: skip
    notes += [f"- {row.drill}, {row.status}: {drill_table.reason_of(row)}" for row in report.rows
              if row.status in ("unproven", "skipped")]  # fmt: skip
    return ["", *notes] if notes else []


# --- files ---------------------------------------------------------------------------------------


def bare(report: DrillReport) -> DrillReport:
    """Without what names this machine, and what no table shows."""
    rows = tuple(
        msgspec.structs.replace(row, timeline=(), folder="", remarks=()) for row in report.rows
    )
    return msgspec.structs.replace(report, rows=rows, folder="", page="")


def encoded(reports: Reports) -> bytes:
    documents = {
        name: msgspec.Raw(document.drill(bare(one)).encode()) for name, one in reports.items()
    }
    return msgspec.json.format(msgspec.json.encode(documents), indent=1) + b"\n"


def decoded(content: bytes) -> Reports:
    documents = msgspec.json.decode(content, type=dict[str, msgspec.Raw])
    return {name: document.drill_report(bytes(one)) for name, one in documents.items()}


def newest() -> Path | None:
    return max(PROOF.glob("drill-????-??-??.json"), default=None)


def refreshed(readme: str, reports: Reports, date: str) -> str:
    """The first time, with a section of its own."""
    if BEGIN not in readme:
        readme = readme.replace(BEFORE, f"{TITLE}\n{BEGIN}{END}\n{BEFORE}", 1)
    before, _, rest = readme.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{readme_table(reports, date)}{END}{after}"


def read(words: Sequence[str]) -> Reports:
    """Raises ConfigError."""
    found = {}
    for word in words:
        name, is_named, file = word.partition("=")
        if not is_named:
            raise ConfigError(f"{word}: must be NAME=FILE")
        found[name] = document.drill_report(Path(file).read_bytes())
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Exits 1 when a promise was broken."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("reports", nargs="+", metavar="NAME=FILE")
    parser.add_argument("--date", default=time.strftime("%Y-%m-%d", time.gmtime()))
    asked = parser.parse_args(argv)
    reports = read(asked.reports)
    (PROOF / f"drill-{asked.date}.json").write_bytes(encoded(reports))
    (PROOF / f"drill-{asked.date}.md").write_text(proof(reports, asked.date))
    README.write_text(refreshed(README.read_text(), reports, asked.date))
    print(f"proof/drill-{asked.date}.md and .json, README.md")
    return int(any(report.broken for report in reports.values()))


if __name__ == "__main__":
    sys.exit(main())
