"""`python -m tools.hold_drills`: every drill on the examples; the README's table and the proof.

    python -m tools.hold_drills [--only "DDP, 4 ranks"] [--folder DIR]

DDP and FSDP2 on four ranks, and DDP on two lab hosts of two ranks each (root). An hour on two
cores. With `--folder` the reports are kept there, and a job whose report is there already is not
drilled again. Exits 1 when a promise was broken.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from tools import write_drill_table

EXAMPLES = Path(__file__).parent.parent / "examples"
JOBS = {
    "DDP, 4 ranks": ("train.py", "--nproc-per-node", "4"),
    "FSDP2, 4 ranks": ("fsdp2.py", "--nproc-per-node", "4"),
    "DDP, 2 lab hosts": ("train.py", "--hosts", "2", "--nproc-per-node", "2"),
}


def hold(name: str, folder: Path, faults: str) -> Path:
    """The report of that job, made where there is none yet."""
    script, *options = JOBS[name]
    report = folder / f"{name.replace(', ', '-').replace(' ', '-')}.json"
    if report.exists():
        return report
    (folder / script).write_text((EXAMPLES / script).read_text())
    which = ["--faults", faults] if faults else ["--all"]
    command = [sys.executable, "-m", "holdfast", "drill", "--json", *which, *options, script]
    with report.with_suffix(".part").open("wb") as answer:
        subprocess.run(command, cwd=folder, stdout=answer, check=False)
    return report.with_suffix(".part").rename(report)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", default=list(JOBS), choices=JOBS, metavar="JOB")
    parser.add_argument("--faults", default="", metavar="A,B,…", help="in place of all")
    parser.add_argument("--folder", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="drills-") as made:
        folder = asked.folder or Path(made)
        folder.mkdir(parents=True, exist_ok=True)
        reports = {name: hold(name, folder, asked.faults) for name in asked.only}
        return write_drill_table.main([f"{name}={file}" for name, file in reports.items()])


if __name__ == "__main__":
    sys.exit(main())
