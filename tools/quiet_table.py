"""The quiet table: healthy jobs that look odd must be left alone.

    python -m tools.quiet_table [NAMES…] [--scale 0.2] [--jobs 2]

Every case is a real job under `holdfast run` with default settings. It passes when the job ends
with 0, without a verdict and without a restart, and no notice names a rank that delays no other.
The notices are printed: a person can judge whether they are true. Writes proof/quiet-table-DATE.md.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.quiet_cases import CASES, Case

ROOT = Path(__file__).parent.parent
TARGETS = ROOT / "tests" / "targets"
DEADLINE = 240.0
"""seconds for a job, beside its pauses: only a job that hangs needs as long"""


@dataclass(frozen=True)
class Outcome:
    case: Case
    seconds: float
    exit_code: int
    acts: list[str]
    """verdicts, restarts and stops: there should be none"""
    notices: list[dict[str, Any]]
    screen: str

    @property
    def problems(self) -> list[str]:
        found = list(self.acts)
        if self.exit_code:
            found.append(f"exit code {self.exit_code}")
        for notice in self.notices:
            if not set(notice["ranks"]) <= set(self.case.may_be_named):
                found.append(f"names an innocent: {notice['slug']}: {notice['reason']}")
            if notice["slug"] in self.case.never:
                found.append(f"not so: {notice['slug']}: {notice['reason']}")
        return found


def play(case: Case, *, scale: float) -> Outcome:
    """One job, from its start to its end; whatever happens, nothing of it is left."""
    with tempfile.TemporaryDirectory(prefix="quiet-") as folder:
        command = [
            sys.executable, "-m", "holdfast", "run", "--no-check", "--runs", folder,
            "--nproc-per-node", str(case.ranks), str(TARGETS / case.script),
            *case.arguments(scale),
        ]  # fmt: skip
        began = time.monotonic()
        deadline = began + DEADLINE + 3 * case.seconds * scale
        with _started(command, Path(folder)) as job:
            if case.meanwhile:
                MEANWHILE[case.meanwhile](job, Path(folder), case.seconds * scale)
            try:
                out, _ = job.communicate(timeout=max(1.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                out = "it was still running at the deadline"
        records = _records(Path(folder))
        return Outcome(
            case=case,
            seconds=time.monotonic() - began,
            exit_code=job.returncode if job.returncode is not None else -1,
            acts=[_act(r) for r in records if r["kind"] in ("verdict", "action")],
            notices=[r for r in records if r["kind"] == "notice"],
            screen=out,
        )


@contextlib.contextmanager
def _started(command: Sequence[str], folder: Path) -> Iterator[subprocess.Popen[str]]:
    outer = ("PET_", "TORCH", "NCCL_", "OMP_", "HOLDFAST")
    surroundings = {k: v for k, v in os.environ.items() if not k.startswith(outer)}
    job = subprocess.Popen(
        command, cwd=folder, env=surroundings, text=True, errors="replace",
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip
    try:
        yield job
    finally:
        # The ranks die with their launcher: the shim asked the kernel for that.
        with contextlib.suppress(ProcessLookupError):
            job.kill()
        job.communicate()


def _records(folder: Path) -> list[dict[str, Any]]:
    journal = folder / "latest" / "journal.jsonl"
    if not journal.exists():
        return []
    return [json.loads(line) for line in journal.read_text().splitlines() if line.endswith("}")]


def _act(record: Mapping[str, Any]) -> str:
    what = record.get("slug") or record.get("action")
    return f"{record['kind']} {what}: {record.get('reason', '')}"


# --- what happens to the machine meanwhile -----------------------------------------------------


def _suspend(job: subprocess.Popen[str], folder: Path, seconds: float) -> None:
    """As a laptop's lid or a hypervisor does: no process runs, not even the launcher."""
    pids = [job.pid, *_ranks_once_they_train(job, folder)]
    try:
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(seconds)
    finally:
        for pid in pids:  # the launcher first: it sees ranks that are still stopped
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def _starve(job: subprocess.Popen[str], folder: Path, seconds: float) -> None:
    """A neighbour who takes all cores, several times over. Each process has a session of its own:
    where the kernel groups by session, as desktops do, they would else get one share together."""
    _ranks_once_they_train(job, folder)
    time.sleep(seconds / 5)  # so that the job's own pace is known
    busy = [sys.executable, "-c", "while True: pass"]
    many = range(4 * (os.cpu_count() or 1))
    neighbours = [subprocess.Popen(busy, start_new_session=True) for _ in many]
    try:
        time.sleep(seconds)
    finally:
        for neighbour in neighbours:
            neighbour.kill()
            neighbour.wait()


def _ranks_once_they_train(job: subprocess.Popen[str], folder: Path) -> list[int]:
    while job.poll() is None:
        records = _records(folder)
        if any(r["kind"] == "progress" for r in records):
            return [r["pid"] for r in records if r["kind"] == "rank"]
        time.sleep(0.2)
    return []


MEANWHILE: Mapping[str, Callable[[subprocess.Popen[str], Path, float], None]] = {
    "suspend": _suspend,
    "starve": _starve,
}


# --- the table ---------------------------------------------------------------------------------


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="healthy jobs that must be left alone")
    parser.add_argument("names", nargs="*", choices=[*sorted(CASES), []], metavar="NAMES")
    parser.add_argument("--scale", type=float, default=1.0, help="shortens all times")
    parser.add_argument("--jobs", type=int, default=2, help="how many at the same time")
    typed = parser.parse_args(argv)
    chosen = [CASES[name] for name in typed.names or CASES]
    # A starved or suspended machine would spoil the others' quiet.
    alone = [case for case in chosen if case.meanwhile == "starve"]
    shared = [case for case in chosen if case not in alone]
    outcomes = []
    for jobs, cases in ((typed.jobs, shared), (1, alone)):
        with ThreadPoolExecutor(max_workers=jobs) as pool:
            for outcome in pool.map(lambda case: play(case, scale=typed.scale), cases):
                outcomes.append(outcome)
                print("\n".join(_lines(outcome)), flush=True)
    if not typed.names:
        _write(outcomes, scale=typed.scale)
    return int(any(outcome.problems for outcome in outcomes))


def _lines(outcome: Outcome) -> list[str]:
    verdict = "FAILED" if outcome.problems else "quiet"
    lines = [f"{verdict:7} {outcome.case.name} ({outcome.seconds:.0f} s)"]
    lines += [f"        PROBLEM {problem}" for problem in outcome.problems]
    lines += [f"        notice {n['slug']}: {n['reason']}" for n in outcome.notices]
    if outcome.exit_code:
        lines += [f"        | {line}" for line in outcome.screen.splitlines()[-15:]]
    return lines


def _write(outcomes: Sequence[Outcome], *, scale: float) -> None:
    today = dt.datetime.now(tz=dt.timezone.utc).date().isoformat()
    failed = sum(bool(outcome.problems) for outcome in outcomes)
    machine = f"Python {platform.python_version()}, {os.cpu_count()} cores"
    result = f"{len(outcomes)} healthy jobs, {failed} of them disturbed"
    report = [
        f"# Quiet table of {today}",
        "",
        f"{machine}; times × {scale:g}; default settings. {result}.",
        "",
        "| job | what is odd about it | took | result | notices (nothing is done to the job) |",
        "|---|---|---|---|---|",
    ]
    for outcome in outcomes:
        said = "<br>".join(f"`{n['slug']}` {n['reason']}" for n in outcome.notices) or "none"
        result = "<br>".join(outcome.problems) or "quiet"
        report.append(
            f"| {outcome.case.name} | {outcome.case.what} | {outcome.seconds:.0f} s | {result} "
            f"| {said} |"
        )
    folder = ROOT / "proof"
    folder.mkdir(exist_ok=True)
    (folder / f"quiet-table-{today}.md").write_text("\n".join([*report, ""]))


if __name__ == "__main__":
    sys.exit(main())
