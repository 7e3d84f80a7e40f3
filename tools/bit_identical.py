"""`python -m tools.bit_identical N`: N kills of a training; it ends bit for bit as if undisturbed.

Jobs of 2 and of 4 ranks (DDP, FSDP2, HSDP, PP×FSDP2, EP) are killed several times each, at random
steps and ranks, half of them around a save. The weights, the optimizer's state and the loss of
every step on every rank, steps done twice included, must be those of an undisturbed run.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.analysis.job.journal_records import ActionRecord, ResumeRecord
from holdfast.run.runs import journal
from tools.job_layouts import LAYOUTS

STEPS, EVERY = 100, 10
KILLS_A_JOB = 5
JOB = Path(__file__).with_name("deterministic_job.py")


@dataclass
class Ran:
    """What one run of the job printed."""

    code: int
    losses: dict[tuple[int, int], set[str]] = field(default_factory=dict)
    """(rank, step) -> every loss that was printed for it"""
    digest: str = ""
    resumed: list[int] = field(default_factory=list)
    restarts: int = 0
    log: str = ""


def kills(rng: random.Random, count: int, world: int) -> list[str]:
    """One an attempt, later and later; half of them within moments of a save."""
    found = []
    rank = rng.randrange(world)
    for attempt, first in enumerate(range(0, STEPS, STEPS // count)[:count]):
        step = rng.randrange(first + 1, first + STEPS // count)
        if rng.random() < 0.5:
            step = max(1, step // EVERY * EVERY)
        found.append(f"{attempt}:{rank}:{step}:{rng.randrange(0, 60)}")
        # The same rank at the same step of two attempts in a row is a bug of the script to `run`.
        rank = (rank + rng.randrange(1, world)) % world
    return found


def run(layout: str, world: int, folder: str, planned: list[str]) -> Ran:
    command = [
        sys.executable, "-m", "holdfast", "run", "--no-check", "--runs", f"{folder}/runs",
        "--nproc-per-node", str(world), "--max-restarts", str(len(planned)),
        str(JOB), layout, f"{folder}/checkpoints", str(STEPS), str(EVERY), *planned,
    ]  # fmt: skip
    outer = ("PET_", "TORCH", "OMP_", "HOLDFAST")
    environment = {name: v for name, v in os.environ.items() if not name.startswith(outer)}
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, timeout=600, check=False
    )
    ran = Ran(done.returncode, log=done.stderr)
    for line in done.stdout.splitlines():
        try:
            said = json.loads(line)
        except ValueError:  # the last words of a rank that was killed
            continue
        if "digest" in said:
            ran.digest = said["digest"]
        else:
            ran.losses.setdefault((said["rank"], said["step"]), set()).add(said["loss"])
    records = journal.read(f"{folder}/runs/latest/journal.jsonl")
    resumes = [one for one in records if isinstance(one, ResumeRecord) and one.rank == 0]
    ran.resumed = [one.step for one in resumes if one.step]
    ran.restarts = sum(isinstance(one, ActionRecord) and one.action == "restart" for one in records)
    return ran


def differences(disturbed: Ran, undisturbed: Ran, restarts: int) -> list[str]:
    """What is not as it should be; [] when every bit is."""
    wrong = []
    if disturbed.code != 0:
        wrong.append(f"exit code {disturbed.code}")
    if disturbed.digest != undisturbed.digest:
        wrong.append(f"digest {disturbed.digest[:12]} instead of {undisturbed.digest[:12]}")
    for place, expected in sorted(undisturbed.losses.items()):
        if disturbed.losses.get(place) != expected:
            wrong.append(f"rank {place[0]} step {place[1]}: {disturbed.losses.get(place)}")
    if disturbed.restarts != restarts:
        wrong.append(f"{disturbed.restarts} restarts instead of {restarts}")
    return wrong


def prove(
    count: int, seed: int, worlds: tuple[int, ...], layouts: tuple[str, ...] = ("ddp",)
) -> tuple[list[str], bool]:
    """Lines to show, and whether all went well."""
    rng = random.Random(seed)
    lines: list[str] = []
    well, left = True, count
    jobs = [(layout, world) for layout in layouts for world in worlds
            if layout in ("ddp", "fsdp") or world == 4]  # fmt: skip
    undisturbed: dict[tuple[str, int], Ran] = {}
    while left > 0:
        layout, world = job = jobs[len(lines) % len(jobs)]
        planned = kills(rng, min(left, KILLS_A_JOB), world)
        left -= len(planned)
        with tempfile.TemporaryDirectory(prefix="bit-identical-") as folder:
            if job not in undisturbed:
                undisturbed[job] = run(layout, world, f"{folder}/alone", [])
            began = time.monotonic()
            ran = run(layout, world, f"{folder}/killed", planned)
            wrong = differences(ran, undisturbed[job], len(planned))
        well &= not wrong
        verdict = "identical" if not wrong else "DIFFERS: " + "; ".join(wrong[:4])
        lines.append(
            f"| {layout} | {world} | {' '.join(planned)} | {', '.join(map(str, ran.resumed))} "
            f"| {time.monotonic() - began:.0f} s | {verdict} |"
        )
        print(lines[-1], flush=True)
        if wrong:
            print(ran.log[-4000:], file=sys.stderr)
    return lines, well


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int, help="kills in all")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--layouts", nargs="+", default=list(LAYOUTS), choices=LAYOUTS)
    parser.add_argument("--out", type=Path, help="a Markdown file to write")
    asked = parser.parse_args(arguments)
    seed = asked.seed if asked.seed is not None else int(time.time())
    lines, well = prove(asked.count, seed, tuple(asked.ranks), tuple(asked.layouts))
    summary = (
        f"{asked.count} kills in {len(lines)} jobs, seed {seed}: "
        f"{'weights, optimizer and every loss identical' if well else 'NOT identical'}"
    )
    print(summary)
    if asked.out:
        asked.out.parent.mkdir(parents=True, exist_ok=True)
        head = (
            "| layout | ranks | kills (attempt:rank:step:ms) | resumed at | took | |\n"
            "|---|---|---|---|---|---|"
        )
        body = "\n".join(lines)
        today = dt.datetime.now(dt.timezone.utc).date()
        asked.out.write_text(f"# Bit-identical, {today}\n\n{summary}\n\n{head}\n{body}\n")
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
