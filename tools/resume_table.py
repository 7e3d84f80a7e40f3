"""What `holdfast run` says of resuming, against the truth, for PyTorch's recipes and trainers.

    python -m tools.resume_table [RECIPES…] [--out proof/resume-DATE.md]

Each recipe (tests/targets/resumes.py) is run twice in an empty folder. Once as a user starts it: a
rank is killed, and it is not restarted, as nothing was loaded yet. And once with --max-restarts 2:
killed, resumed, killed again with a bit of its checkpoint flipped, and started from that.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
SCRIPT = ROOT / "tests" / "targets" / "resumes.py"
RECIPES = ("torch.save", "nanoGPT-like", "DCP", "FSDP2", "accelerate", "Trainer", "Lightning")
SAVED_AT, KILLED_AT = 10, 17
LONGEST = 240.0


@dataclass(frozen=True)
class Row:
    recipe: str
    state: str
    truth: str
    said: str
    right: bool


def rows(recipe: str, folder: Path, *, first_alone: bool = True) -> list[Row]:
    """One row for each state; `folder` is empty."""
    found = [_first(recipe, _ran(recipe, folder / "first"))] if first_alone else []
    job = _ran(recipe, folder / "again", "--max-restarts", "2")
    return [*found, _resumed(recipe, job), _damaged(recipe, job)]


@dataclass(frozen=True)
class _Job:
    screen: str
    records: Sequence[dict[str, Any]]
    began: Sequence[int]
    """at which step each start began, by the script's own account"""


def _ran(recipe: str, folder: Path, *options: str) -> _Job:
    folder.mkdir(parents=True)
    outer = ("PET_", "TORCH", "NCCL_", "HOLDFAST")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(outer)}
    command = [sys.executable, "-m", "holdfast", "run", "--no-check", "--nproc-per-node", "2",
               *options, str(SCRIPT), recipe]  # fmt: skip
    done = subprocess.run(
        command, cwd=folder, env=environment | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, timeout=LONGEST, check=False, errors="replace",
    )  # fmt: skip
    journal = next(folder.glob("runs/*/journal.jsonl")).read_text().replace(f"{folder}/", "")
    truth = folder / "truth.jsonl"
    return _Job(
        screen=done.stderr.replace(f"{folder}/", ""),
        records=[json.loads(line) for line in journal.splitlines()],
        began=[json.loads(line)["step"] for line in truth.read_text().splitlines()],
    )


def _first(recipe: str, job: _Job) -> Row:
    said = _sentence(job.screen, r"no restart[^\n]*")
    right = re.search(rf"saved \S.* at step {SAVED_AT}\b.*--max-restarts 3", said) is not None
    return Row(recipe, "first run", f"saved at step {SAVED_AT}, killed at {KILLED_AT}", said, right)


def _resumed(recipe: str, job: _Job) -> Row:
    began = job.began[1] if len(job.began) > 1 else None
    said = _sentence(job.screen, r"resumed: [^\n]*|probably resumed[^\n]*|unknown whether[^\n]*"
                                 r"|restart-from-zero[^\n]*")  # fmt: skip
    repeated = KILLED_AT - (began or 0)
    right = (
        f"counted {began} steps" in said
        and f"{repeated} steps are repeated" in said
        and "restart-from-zero" not in job.screen
    )
    return Row(recipe, "resume", f"began at {began}, {repeated} steps repeated", said, right)


def _damaged(recipe: str, job: _Job) -> Row:
    verdicts = [one for one in job.records if one["kind"] == "verdict"]
    last = verdicts[-1] if verdicts else {"slug": "", "reason": ""}
    said = f"{last['slug']}: {last['reason']}"
    # What the rank itself prints is on the screen as well.
    ours = "\n".join(line for line in job.screen.splitlines() if line.startswith("holdfast>"))
    right = last["slug"] == "checkpoint-corrupt" and "likely succeed" not in ours
    return Row(recipe, "damaged", "a bit flipped", said, right)


def _sentence(screen: str, pattern: str) -> str:
    found = re.findall(pattern, screen)
    return found[-1] if found else "(nothing)"


def page(found: Sequence[Row]) -> Iterator[str]:
    import torch  # noqa: PLC0415

    right = sum(row.right for row in found)
    yield f"# What is said about resuming: {dt.date.today()}"  # noqa: DTZ011
    yield ""
    yield (
        f"`python -m tools.resume_table`: {right} of {len(found)} statements are true. torch "
        f"{torch.__version__}, Python {platform.python_version()}, two ranks on CPU, each launch "
        "once. Each recipe starts fresh and is killed at step 17; resumes and is killed at step 25 "
        "with one bit of its newest checkpoint flipped; and is started from that."
    )
    yield ""
    yield "| recipe | state | truth | what holdfast said | |"
    yield "|---|---|---|---|---|"
    for row in found:
        said = row.said.replace("|", "\\|")
        mark = "right" if row.right else "**wrong**"
        yield f"| {row.recipe} | {row.state} | {row.truth} | {said} | {mark} |"


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("recipes", nargs="*", default=RECIPES)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    found: list[Row] = []
    for recipe in options.recipes:
        with tempfile.TemporaryDirectory(prefix="resume-") as folder:
            found += rows(recipe, Path(folder))
    text = "\n".join(page(found)) + "\n"
    print(text)
    if options.out:
        options.out.write_text(text)
    return 0 if all(row.right for row in found) else 1


if __name__ == "__main__":
    sys.exit(main())
