"""The same faults in the same job, under `holdfast run` and under other launchers.

`holdfast drill --runner …` on examples/train.py with four CPU ranks; writes
bench/drill_vs_torchrun.md. `accelerate` and `ft_launcher` take part with --all-launchers where they
are installed: in this environment, or in --peers BIN_DIR.
"""

from __future__ import annotations

import argparse
import datetime as dt
import os
import platform
import sys
import tempfile
import textwrap
from collections.abc import Sequence
from pathlib import Path

from holdfast.analysis.drill.outcome import DrillReport, DrillRow
from holdfast.drill import asked
from holdfast.drill.conduct import Conductor, longest_allowed
from holdfast.drill.scripted import plan
from holdfast.errors import ConfigError
from holdfast.view.drill_screen import DrillScreen

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "bench" / "drill_vs_torchrun.md"
RANKS, RESTARTS, PATIENCE = 4, 3, 8.0
FAULTS = (
    "rank-killed", "native-crash", "python-exception", "rank-exits-early", "host-oom",
    "rank-stuck", "rank-frozen", "collective-mismatch", "disk-full", "checkpoint-corrupt",
    "checkpoint-incomplete", "external-sigterm", "launcher-killed",
)  # fmt: skip
RESTARTS_WORK = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
"""Without it torch's agent gives the ranks its own store again: with Gloo they find the addresses
of the attempt before, and no restart comes back (pytorch/pytorch#135712)."""
WORST_FIRST = ("differs", "unknown", "same", "identical")


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--all-launchers", action="store_true")
    parser.add_argument("--peers", default="", metavar="BIN_DIR", help="where ft_launcher is")
    parser.add_argument("--faults", default=",".join(FAULTS))
    parser.add_argument("--out", type=Path, default=PAGE)
    typed = parser.parse_args()
    os.environ |= RESTARTS_WORK
    if typed.peers:
        os.environ["PATH"] = f"{os.path.abspath(typed.peers)}{os.pathsep}{os.environ['PATH']}"
    others = ("torchrun", "accelerate", "ft_launcher") if typed.all_launchers else ("torchrun",)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        Path("train.py").symlink_to(ROOT / "examples" / "train.py")
        ours = hold("holdfast", typed.faults)
        assert isinstance(ours, DrillReport)
        held = [hold(name, typed.faults, reference=ours.folder) for name in others]
        os.chdir(ROOT)
    typed.out.write_text(page([ours, *(one for one in held if isinstance(one, DrillReport))]))
    for missing in (one for one in held if isinstance(one, str)):
        print(missing, file=sys.stderr)
    return 1 if ours.broken else 0


def hold(runner: str, faults: str, *, reference: str = "") -> DrillReport | str:
    """A sentence where it is not installed."""
    words = ["--runner", runner, "--patience", f"{PATIENCE:g}", "--keep",
             *(["--reference", reference] if reference else []),
             "--nproc-per-node", str(RANKS), "--max-restarts", str(RESTARTS),
             "train.py"]  # fmt: skip
    screen = DrillScreen(sys.stderr)
    try:
        plans = [plan(fault) for fault in faults.split(",")]
        return Conductor(asked.parse(words), screen, plans=plans).hold()
    except ConfigError as problem:
        return f"{problem} ({problem.hint})"
    finally:
        screen.close()


# --- the page ------------------------------------------------------------------------------------


def page(reports: Sequence[DrillReport]) -> str:
    names = " and ".join(f"`{launcher(one)}`" for one in reports[1:])
    today = dt.datetime.now(dt.timezone.utc).date()
    return "\n".join([
        f"# The same faults under `holdfast run` and under {names}",
        "",
        f"Made by `python -m bench.drill_vs_torchrun` on {today}; not edited by hand.",
        "",
        *textwrap.wrap(job_in_words(reports[0]), 100),
        "",
        *textwrap.wrap(columns_in_words(reports[0]), 100),
        "",
        *summary(reports),
        "",
        *table(reports),
        "",
        *skipped(reports),
    ])  # fmt: skip


def launcher(report: DrillReport) -> str:
    return "holdfast run" if report.runner == "holdfast" else report.runner


def job_in_words(ours: DrillReport) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in sorted(ours.versions.items()))
    return (
        f"`holdfast drill --runner …` on [examples/train.py](../examples/train.py): {ours.ranks} "
        f"CPU ranks (Gloo), {ours.steps} steps, a checkpoint every 10, `--max-restarts "
        f"{RESTARTS}`, `--patience {PATIENCE:g}` for `holdfast run`; {os.cpu_count()} cores, "
        f"{platform.system()}, {versions}. One run each, on one small machine. All with "
        "`TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1`: without it, in this release of torch, no Gloo job "
        "comes back from a restart of torchrun, since the ranks find the addresses of the attempt "
        "before in its store ([pytorch#135712](https://github.com/pytorch/pytorch/issues/135712)). "
        "`holdfast run` gives each attempt a new store."
    )


def columns_in_words(ours: DrillReport) -> str:
    limit = longest_allowed(ours.reference_seconds, PATIENCE)
    return (
        "*Noticed*: seconds from the fault to the first line of the launcher that names a rank or "
        "a fault; what the ranks print does not count. *Named*: another launcher than ours need "
        "only name the rank. *Back*: seconds to the first step of the ranks that resumed; where "
        "the launcher ends, as after SIGTERM, the drill starts it again. *Result*: data, loss and "
        "weights of every step against an undisturbed run. A job that had not ended after "
        f"{limit:.0f} s was ended by the drill: Gloo's own timeout, which ends a hang that a "
        "launcher does not, is 1800 s."
    )


def summary(reports: Sequence[DrillReport]) -> list[str]:
    heads = ("launcher", "faults", "noticed", "named right", "trained again", "result identical",
             "nothing left")  # fmt: skip
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for report in reports:
        rows = [row for row in report.rows if row.status != "skipped"]
        counts = (
            len(rows),
            sum(row.noticed is not None for row in rows),
            sum(row.named_right is True for row in rows),
            sum(row.recovered is not None for row in rows),
            sum(result(row) == "identical" for row in rows),
            sum(not row.left for row in rows),
        )
        lines.append(f"| {launcher(report)} | {' | '.join(map(str, counts))} |")
    return lines


def table(reports: Sequence[DrillReport]) -> list[str]:
    lines = ["| fault | launcher | noticed | named | back | steps repeated | result | left |",
             "|---|---|---|---|---|---|---|---|"]  # fmt: skip
    for ours in reports[0].rows:
        for report in reports:
            (row,) = (one for one in report.rows if one.drill == ours.drill)
            first = ours.does if report is reports[0] else ""
            cells = " | ".join(("skipped", *[""] * 5) if row.status == "skipped" else figures(row))
            lines.append(f"| {first} | {launcher(report)} | {cells} |")
    return lines


def figures(row: DrillRow) -> tuple[str, ...]:
    slug, _, whom = row.named.partition(": ")
    said = row.named if whom.startswith("rank") else slug  # not the name of this machine
    named = {True: said, False: f"**wrong**: {said}", None: "-"}
    return (
        seconds(row.noticed, otherwise="never"),
        named[row.named_right] if row.named else "-",
        seconds(row.recovered, otherwise="never"),
        "-" if row.repeated is None else str(row.repeated),
        result(row) if row.recovered is not None else "-",
        f"{len(row.left)}" if row.left else "nothing",
    )


def seconds(value: float | None, *, otherwise: str) -> str:
    return otherwise if value is None else f"{value:.1f} s"


def result(row: DrillRow) -> str:
    return min((row.data, row.loss, row.weights), key=WORST_FIRST.index)


def skipped(reports: Sequence[DrillReport]) -> list[str]:
    why = {
        f"{launcher(report)}, {row.drill}: {row.why}"
        for report in reports
        for row in report.rows
        if row.status == "skipped"
    }
    return ["Skipped:", "", *(f"- {one}" for one in sorted(why)), ""] if why else []


if __name__ == "__main__":
    sys.exit(main())
