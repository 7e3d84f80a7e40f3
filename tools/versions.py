"""The tests of the launcher and of what runs inside ranks, with several versions of torch.

    python -m tools.versions [VERSION…] [--cache DIR] [--out FOLDER]

Builds one environment each (5 to 7 GB with CUDA's libraries; kept in the cache for the next
time), installs holdfast there as it is now, and runs tests/run and tests/rank. Exits 1 when a test
fails. `--out proof` writes proof/versions-DATE.md.
"""

from __future__ import annotations

import argparse
import datetime as dt
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
import venv
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parent.parent
VERSIONS = ("2.8.0", "2.10.0", "2.13.0", "2.15.0")
TESTS = ("tests/run", "tests/rank")
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "holdfast-versions")
NOT_NEEDED = ("torch", "ruff", "mypy", "import-linter", "coverage", "pytest-cov", "transformers",
              "accelerate", "lightning")  # fmt: skip
ASK = (
    "import torch; from holdfast.run.launch import torch_names; "
    "print('; '.join(torch_names.check(torch.__version__)))"
)


@dataclass
class Row:
    version: str
    passed: int = 0
    seconds: float = 0.0
    failed: list[str] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)
    said: str = ""

    def line(self) -> str:
        skipped = sum(self.skipped.values())
        return (
            f"| {self.version} | {self.passed} | {len(self.failed)} | {skipped} | "
            f"{self.seconds / 60:.0f} min | {self.said or 'nothing'} |"
        )


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="tests/run and tests/rank, torch by torch")
    parser.add_argument("versions", nargs="*", default=VERSIONS, metavar="VERSION")
    parser.add_argument("--cache", type=Path, default=CACHE, metavar="DIR",
                        help=f"where the environments are (default: {CACHE})")  # fmt: skip
    parser.add_argument("--out", metavar="FOLDER", help="write the table there")
    asked = parser.parse_args(argv)
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)  # `nohup … &` ignores them, and tests send them
    rows = []
    for version in asked.versions:
        python = environment(asked.cache, version)
        rows.append(run_tests(python, version, asked.cache / f"report-{version}.xml"))
        print(rows[-1].line(), flush=True)
    told = table(rows)
    print(told)
    if asked.out:
        os.makedirs(asked.out, exist_ok=True)
        today = f"{dt.datetime.now(dt.timezone.utc):%Y-%m-%d}"
        Path(asked.out, f"versions-{today}.md").write_text(told)
    return int(any(row.failed for row in rows))


def environment(cache: Path, version: str) -> Path:
    """The Python of this version's environment, with holdfast as it is now."""
    folder = cache / f"torch-{version}"
    python, ready = folder / "bin" / "python", folder / ".ready"
    pip = [str(python), "-m", "pip", "install", "--quiet"]
    if not ready.exists():
        shutil.rmtree(folder, ignore_errors=True)
        venv.create(folder, with_pip=True)
        subprocess.run([*pip, f"torch=={version}", *requirements()], check=True)
        ready.touch()
    again = ["--no-deps", "--force-reinstall", "--no-build-isolation"]
    subprocess.run([*pip, *again, str(ROOT)], check=True)
    return python


def requirements() -> list[str]:
    """Ours for development, without torch itself and what no test of these needs."""
    lines = (ROOT / "requirements-dev.txt").read_text().splitlines()
    wanted = [line for line in lines if line and not line.startswith("#")]
    return [line for line in wanted if line.split("==")[0] not in NOT_NEEDED]


def run_tests(python: Path, version: str, report: Path) -> Row:
    report.unlink(missing_ok=True)
    command = ["-m", "pytest", "-q", "-n", "2", "--dist", "loadgroup", "-m", "not long",
               f"--junitxml={report}", *TESTS]  # fmt: skip
    began = time.monotonic()
    subprocess.run([str(python), *command], cwd=ROOT, check=False)
    asked = subprocess.run([str(python), "-c", ASK], capture_output=True, text=True, check=False)
    said = asked.stdout.strip() or asked.stderr.strip().rpartition("\n")[2]
    row = Row(version, said=said, seconds=time.monotonic() - began)
    if report.exists():
        read(report.read_text(), row)
    else:
        row.failed.append("pytest did not run")
    return row


def read(report: str, row: Row) -> None:
    """A test that passed when it was tried again is listed once, as passed."""
    outcomes: dict[str, ET.Element] = {}
    for case in ET.fromstring(report).iter("testcase"):  # noqa: S314 - pytest wrote it
        outcomes[f"{case.get('classname')}::{case.get('name')}"] = case
    for name, case in outcomes.items():
        skipped = case.find("skipped")
        if case.find("failure") is not None or case.find("error") is not None:
            row.failed.append(name)
        elif skipped is not None:
            row.skipped[skipped.get("message", "")] += 1
        else:
            row.passed += 1


def table(rows: Sequence[Row]) -> str:
    lines = [
        f"# Versions of torch, {dt.datetime.now(dt.timezone.utc):%Y-%m-%d}",
        "",
        f"{' and '.join(TESTS)}, Python {platform.python_version()}, {os.cpu_count()} cores.",
        "",
        "| torch | passed | failed | skipped | took | what `run` says at start |",
        "|---|---:|---:|---:|---:|---|",
        *(row.line() for row in rows),
        "",
    ]
    for row in rows:
        if row.failed:
            lines += [f"Failed with {row.version}:", "", *(f"- {name}" for name in row.failed), ""]
        if row.skipped:
            reasons = (f"- {number}: {reason}" for reason, number in row.skipped.items())
            lines += [f"Skipped with {row.version}:", "", *reasons, ""]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
