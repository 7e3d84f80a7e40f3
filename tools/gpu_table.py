"""The GPU table for real: four NCCL ranks, one fault each time, judged from the run's journal.

    python -m tools.gpu_table [--only ddp 'pipeline kernel' …] [--at-once 3] [--out DIR]

Where there are fewer than four GPUs the ranks share them; NCCL then takes each for a host. Prints
the table; the whole of it also goes to proof/gpu-table-DATE.md. Exits 1 when a row is wrong.
"""

from __future__ import annotations

import argparse
import datetime as dt
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from holdfast.run.runs import journal

ROOT = Path(__file__).parent.parent
JOB = ROOT / "tests" / "targets" / "gpu_job.py"
RANKS = 4
NAMED = 5.0
"""seconds after the fault"""
LONGEST = 45.0
AFTERWARDS = 2.0
"""seconds in which a second sentence may still come"""

HEALTHY = "healthy"
FAULTS = {
    HEALTHY: "",
    "kill": "rank-killed",
    "stop": "rank-frozen",
    "sleep": "rank-stuck",
    "exit": "rank-exits-early",
    "exception": "python-exception",
    "size": "collective-mismatch",
    "op": "collective-mismatch",
    "group": "rank-conditional-code",
    "kernel": "rank-stuck",
    "assert": "cuda-assert",
    "oom": "gpu-oom",
}
LAYOUTS = {"ddp": 2, "fsdp2": 2, "mesh": 2, "pipeline": 2, "dp_pp": 1}
"""and the rank that breaks"""
IN_PIPELINES = {"size": "rank-conditional-code", "op": "rank-conditional-code"}
"""the other stages call no collective there that it could differ from"""


@dataclass
class Row:
    layout: str
    fault: str
    slug: str = ""
    named: float | None = None
    reason: str = ""
    wrong: list[str] = field(default_factory=list)

    HEAD = "| job | fault | said | after | sentence | |"

    def line(self) -> str:
        after = "" if self.named is None else f"{self.named:.1f} s"
        verdict = "; ".join(self.wrong) or "right"
        reason = self.reason.replace("|", "/")[:220]
        return f"| {self.layout} | {self.fault} | {self.slug} | {after} | {reason} | {verdict} |"


def main() -> int:
    parser = argparse.ArgumentParser(description="the GPU table, for real")
    parser.add_argument("--only", nargs="+", metavar="ROW", help="'ddp', 'kernel', 'ddp kernel'")
    parser.add_argument("--at-once", type=int, default=1, help="jobs that run at the same time")
    parser.add_argument("--out", metavar="DIR", help="keep the runs there")
    asked = parser.parse_args()
    only = set(asked.only or ())
    rows = [
        (layout, fault)
        for layout in LAYOUTS
        for fault in FAULTS
        if not only or only & {layout, fault, f"{layout} {fault}"}
    ]
    keep = Path(asked.out or tempfile.mkdtemp(prefix="gpu-table-"))
    with ThreadPoolExecutor(asked.at_once) as pool:
        done = list(pool.map(lambda row: _try_one(*row, keep / "-".join(row)), rows))
    report = _report(done)
    print(report)
    if len(done) == len(LAYOUTS) * len(FAULTS):
        date = f"{dt.datetime.now(dt.timezone.utc):%Y-%m-%d}"
        (ROOT / "proof" / f"gpu-table-{date}.md").write_text(report)
    return any(row.wrong for row in done)


def _try_one(layout: str, fault: str, folder: Path) -> Row:
    folder.mkdir(parents=True)
    (folder / "tmp").mkdir()
    command = [
        sys.executable, "-m", "holdfast", "run", "--no-check", "--max-restarts", "0",
        "--nproc-per-node", str(RANKS), str(JOB), layout, "80",
    ]  # fmt: skip
    if fault != HEALTHY:
        command += [fault, str(LAYOUTS[layout])]
    environment = {
        **os.environ,
        "FAULT_TIME_FILE": str(folder / "fault-time"),
        "TMPDIR": str(folder / "tmp"),
    }
    with (folder / "screen").open("wb") as screen:
        job = subprocess.Popen(command, cwd=folder, env=environment, stdout=screen, stderr=screen)
        _wait(job, folder)
    row = _judge(layout, fault, folder, job.returncode)
    print(row.line(), flush=True)
    return row


def _wait(job: subprocess.Popen[bytes], folder: Path) -> None:
    """Until it ends, or has said all that it is going to say."""
    end = time.monotonic() + LONGEST
    while job.poll() is None and time.monotonic() < end:
        time.sleep(0.2)
        if _said(folder):
            end = min(end, time.monotonic() + AFTERWARDS)
    if job.poll() is None:
        job.send_signal(signal.SIGTERM)
        try:
            job.wait(40)
        except subprocess.TimeoutExpired:
            job.kill()
            job.wait()


def _said(folder: Path) -> list[dict[str, Any]]:
    records = journal.read(str(folder / "runs" / "latest" / "journal.jsonl"))
    told = [msgspec.to_builtins(record) for record in records]
    return [r for r in told if r["kind"] in ("notice", "verdict")
            and r["slug"] != "external-sigterm"]  # fmt: skip


def _judge(layout: str, fault: str, folder: Path, exit_code: int) -> Row:
    row = Row(layout, fault)
    said = _said(folder)
    if fault == HEALTHY:
        row.wrong = [f"{r['slug']}: {r['reason']}" for r in said]
        row.wrong += [f"exit code {exit_code}"] * bool(exit_code)
        return row
    moment = folder / "fault-time"
    if not moment.exists():
        row.wrong.append("the fault never came")
        return row
    expected = FAULTS[fault]
    if layout in ("pipeline", "dp_pp"):
        expected = IN_PIPELINES.get(fault, expected)
    rank = LAYOUTS[layout]
    if not said:
        row.wrong.append("never named")
        return row
    row.slug, row.reason = said[-1]["slug"], said[-1]["reason"]
    row.named = said[0]["t"] - float(moment.read_text())
    if row.slug != expected:
        row.wrong.append(f"should be {expected}")
    row.wrong += [f"{r['slug']} names {r['ranks']}" for r in said if list(r["ranks"]) != [rank]]
    row.wrong += [f"later than {NAMED:g} s"] * (row.named > NAMED)
    return row


def _report(rows: Sequence[Row]) -> str:
    wrong = [row for row in rows if row.wrong]
    introduction = (
        f"{RANKS} NCCL ranks, group timeout 600 s, 50 ms a step, default settings; "
        f"{os.cpu_count()} cores, Python {platform.python_version()}, {_gpus()}. Seconds from the "
        "fault to the first sentence; rank 2 breaks, in dp_pp rank 1."
    )
    lines = [
        f"# GPU table, {dt.datetime.now(dt.timezone.utc):%Y-%m-%d}",
        "",
        introduction,
        "",
        f"{len(rows) - len(wrong)} of {len(rows)} rows as they should be.",
        "",
        Row.HEAD,
        "|".join(["", *["---"] * (Row.HEAD.count("|") - 1), ""]),
        *(row.line() for row in rows),
        "",
    ]
    return "\n".join(lines)


def _gpus() -> str:
    import torch  # noqa: PLC0415 - two seconds, which `--help` need not take

    names = {torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())}
    return f"torch {torch.__version__}, {torch.cuda.device_count()} × {', '.join(names)}"


if __name__ == "__main__":
    sys.exit(main())
