"""PyTorch's own tests of its launcher and elastic agent, with holdfast in their place.

    python -m tools.torchrun_tests PYTORCH [--out FOLDER]

PYTORCH is a checkout of the release that is installed (`git clone --depth 1 --branch v2.13.0
--filter=blob:none --sparse`, then `git sparse-checkout set test/distributed`); nothing of it is
kept here. Its tests need `pip install expecttest`. Exits 1 when a test that applies fails.
`--out proof` writes proof/torchrun-tests-DATE.md.
"""

from __future__ import annotations

import argparse
import datetime as dt
import os
import platform
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

FOLDERS = (
    "test/distributed/launcher",
    "test/distributed/elastic/multiprocessing",
    "test/distributed/elastic/agent/server/test",
    "test/distributed/elastic/rendezvous",
)
CALLS = ("launch.main(", "LocalElasticAgent(", "_register_out_of_tree_handlers(")
"""what a file must contain to be about a launcher, an agent or the door for rendezvous at all"""
PLUGINS = ("tools.in_torchruns_place", "tools.in_torchs_agents_place")
PLACE = (
    "`torch.distributed.run.main` is `holdfast run` with its default options "
    "(tools/in_torchruns_place.py); `LocalElasticAgent` and the handler for c10d are holdfast's "
    "(tools/in_torchs_agents_place.py)."
)
NOT_APPLICABLE = {
    "test_launch_shutdown": "replaces torchrun's agent and rendezvous by mocks and counts their "
    "calls",
    "test_barrier_failed_c10d": "replaces torch's barrier in the store by a mock and counts its "
    "calls: the coordinator's word stands in its place",
    "test_shutdown_called_c10d": "replaces torch's processes by mocks and counts their calls",
}


@dataclass(frozen=True)
class Result:
    test: str
    outcome: str
    why: str = ""

    @property
    def wrong(self) -> bool:
        return self.outcome == "failed"

    def line(self) -> str:
        return f"| {self.test} | {self.outcome} | {self.why} |"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="PyTorch's launcher tests, run by holdfast")
    parser.add_argument("checkout", metavar="PYTORCH", type=Path)
    parser.add_argument("--out", metavar="FOLDER", help="write the table there")
    asked = parser.parse_args(argv)
    files, others = test_files(asked.checkout)
    if not files:
        print(f"no test that calls a launcher below {asked.checkout}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        plugins = [word for name in PLUGINS for word in ("-p", name)]
        command = ["-q", *plugins, "-p", "no:randomly", "-p", "no:rerunfailures",
                   "--show-capture=no", "-c", os.devnull, f"--junitxml={report}"]  # fmt: skip
        subprocess.run([sys.executable, "-m", "pytest", *command, *map(str, files)], check=False)
        results = read(report.read_text())
    told = table(results, others)
    print(told)
    if asked.out:
        os.makedirs(asked.out, exist_ok=True)
        today = f"{dt.datetime.now(dt.timezone.utc):%Y-%m-%d}"
        Path(asked.out, f"torchrun-tests-{today}.md").write_text(told)
    return int(any(result.wrong for result in results))


def test_files(checkout: Path) -> tuple[list[Path], list[str]]:
    """Those that start a launcher, and the names of those that test torch's own functions."""
    found = [
        path
        for folder in FOLDERS
        for path in sorted((checkout / folder).rglob("*.py"))
        if path.stem.startswith("test_") or path.stem.endswith("_test")
    ]
    found = [path for path in found if path.parent.name != "bin"]
    about = [path for path in found if any(call in path.read_text() for call in CALLS)]
    return about, [path.name for path in found if path not in about]


def read(report: str) -> list[Result]:
    """pytest's report as results; a test that cannot apply is listed as such, whatever it gave."""
    results = []
    for case in ET.fromstring(report).iter("testcase"):  # noqa: S314 - pytest wrote it
        name = case.get("name", "")
        failed = case.find("failure") if case.find("failure") is not None else case.find("error")
        skipped = case.find("skipped")
        if name in NOT_APPLICABLE:
            results.append(Result(name, "not applicable", NOT_APPLICABLE[name]))
        elif failed is not None:
            why = failed.get("message", "").splitlines()
            results.append(Result(name, "failed", (why or [""])[0].replace("|", "/")[:200]))
        elif skipped is not None:
            results.append(Result(name, "skipped", skipped.get("message", "")))
        else:
            results.append(Result(name, "passed"))
    return results


def table(results: Sequence[Result], others: Sequence[str]) -> str:
    import torch  # noqa: PLC0415 - only its version, and only here

    count = {
        kind: sum(result.outcome == kind for result in results)
        for kind in ("passed", "failed", "not applicable", "skipped")
    }
    said = ", ".join(f"{number} {kind}" for kind, number in count.items() if number)
    lines = [
        f"# PyTorch's tests of launcher and agent, {dt.datetime.now(dt.timezone.utc):%F}",
        "",
        f"torch {torch.__version__}, Python {platform.python_version()}, {os.cpu_count()} cores. "
        + PLACE,
        "",
        f"{said}.",
        "",
        "| test | outcome | why |",
        "|---|---|---|",
        *(result.line() for result in results),
        "",
    ]
    if others:
        lines += [f"Not run, because no launcher or agent is in them: {', '.join(others)}.", ""]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
