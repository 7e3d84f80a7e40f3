"""The quiet table: healthy jobs that look odd must be left alone.

    python -m tools.quiet_table [NAMES…] [--scale 0.2] [--jobs 2]

Every case is a real job under `holdfast run` with default flags. It passes when the job ends
with 0, without a verdict and without a restart, and no notice names a rank that delays no other.
The notices are printed: a person can judge whether they are true. Writes proof/quiet-table-DATE.md.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.quiet_cases import CASES, Case
from tools.quiet_surroundings import MEANWHILE, SURROUNDINGS, NotHereError, Surrounding, records

ROOT = Path(__file__).parent.parent
TARGETS = ROOT / "tests" / "targets"
DEADLINE = 240.0
"""seconds for a job, beside its pauses: only a job that hangs needs as long"""


@dataclass(frozen=True)
class Outcome:
    case: Case
    seconds: float = 0.0
    exit_code: int = 0
    acts: Sequence[str] = ()
    """verdicts, restarts, stops and bugs of our own: there should be none"""
    notices: Sequence[dict[str, Any]] = ()
    screen: str = ""
    skipped: str = ""

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
        try:
            with SURROUNDINGS[case.around](Path(folder)) as around:
                return _play(case, around, seconds=case.seconds * scale, scale=scale)
        except NotHereError as lacking:
            return Outcome(case=case, skipped=str(lacking))


def _play(case: Case, around: Surrounding, *, seconds: float, scale: float) -> Outcome:
    command = [
        sys.executable, "-m", "holdfast", "run", "--no-check",
        "--runs", str(around.runs), "--nproc-per-node", str(case.ranks),
        str(TARGETS / case.script), *case.arguments(scale),
    ]  # fmt: skip
    began = time.monotonic()
    deadline = began + DEADLINE + 4 * seconds
    with _started(command, around) as job:
        if case.meanwhile:
            MEANWHILE[case.meanwhile](job, around, seconds)
        try:
            out, _ = job.communicate(timeout=max(1.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            out = "it was still running at the deadline"
    told = records(around.runs)
    return Outcome(
        case=case,
        seconds=time.monotonic() - began,
        exit_code=job.returncode if job.returncode is not None else -1,
        acts=[_act(r) for r in told if r["kind"] in ("verdict", "action", "own-fault")],
        notices=[r for r in told if r["kind"] == "notice"],
        screen=out,
    )


@contextlib.contextmanager
def _started(command: Sequence[str], around: Surrounding) -> Iterator[subprocess.Popen[str]]:
    outer = ("PET_", "TORCH", "NCCL_", "OMP_", "HOLDFAST")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(outer)}
    job = subprocess.Popen(
        command, cwd=around.runs.parent, env={**environment, **around.environment}, text=True,
        errors="replace", stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        start_new_session=True,
    )  # fmt: skip
    try:
        yield job
    finally:
        # The ranks die with their launcher: the shim asked the kernel for that.
        with contextlib.suppress(ProcessLookupError):
            job.kill()
        job.communicate()


def _act(record: Mapping[str, Any]) -> str:
    what = record.get("slug") or record.get("action")
    return f"{record['kind']} {what}: {record.get('reason', '')}"


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
    if outcome.skipped:
        return [f"skipped {outcome.case.name}: {outcome.skipped}"]
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
        skipped = f"skipped: {outcome.skipped}" if outcome.skipped else "quiet"
        result = "<br>".join(outcome.problems) or skipped
        report.append(
            f"| {outcome.case.name} | {outcome.case.what} | {outcome.seconds:.0f} s | {result} "
            f"| {said} |"
        )
    folder = ROOT / "proof"
    folder.mkdir(exist_ok=True)
    (folder / f"quiet-table-{today}.md").write_text("\n".join([*report, ""]))


if __name__ == "__main__":
    sys.exit(main())
