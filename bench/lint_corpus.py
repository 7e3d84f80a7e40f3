"""What `holdfast lint` says about good code, finding by finding, with a judgement of each.

The corpus: torch as installed, and packages from PyPI in the versions below. Every finding is
in bench/lint_corpus.md with a reviewer's judgement, which is kept when the table is made again; a
finding without a judgement says so.

    python -m bench.lint_corpus FOLDER [--tree NAME@COMMIT=PATH …] [--write]

FOLDER keeps the unpacked packages; --tree adds a checkout, for launch scripts, which packages lack.
"""

from __future__ import annotations

import argparse
import collections
import importlib.metadata
import importlib.util
import json
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from typing import Any, NamedTuple

PACKAGES = (
    *("accelerate==1.15.0", "colossalai==0.5.0", "composer==0.32.1", "deepspeed==0.19.8"),
    *("dlrover==0.6.1", "espnet==202511", "fairscale==0.4.13", "fairseq==0.12.2"),
    *("horovod==0.28.1", "lightning==2.6.6", "litgpt==0.5.13", "megatron-core==0.16.1"),
    *("nvidia-resiliency-ext==0.4.1", "peft==0.21.2", "pytorch-ignite==0.5.5"),
    *("speechbrain==1.1.2", "timm==1.0.30", "torchdata==0.11.0", "torchft==0.2.0"),
    *("torchtitan==0.3.0", "torchtune==0.6.1", "transformers==5.22.2", "trl==1.16.0"),
    "ultralytics==8.4.190",
)
TABLE = os.path.join(os.path.dirname(__file__), "lint_corpus.md")
NOT_YET = "not judged"
STATUSES = ("error", "warning", "note", "skipped")
VERDICTS = ("right", "meant", "arguable", "wrong", NOT_YET)
ROW = re.compile(
    r"\| `(?P<place>[^`]+)` \| (?P<status>\w+) \| (?P<slug>[\w-]+) \| .* \| (?P<said>.*) \|"
)

Key = tuple[str, str, str]


class Found(NamedTuple):
    place: str
    """package/file:line"""
    status: str
    slug: str
    summary: str

    @property
    def key(self) -> Key:
        """Lines stay what they are in a pinned version; what we say about them may be reworded.

        A finding whose severity changed has to be judged again.
        """
        return self.place, self.slug, self.status


class Linted(NamedTuple):
    name: str
    files: int
    found: list[Found]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder")
    parser.add_argument("--tree", action="append", default=[], metavar="NAME@COMMIT=PATH")
    parser.add_argument("--write", action="store_true", help="write bench/lint_corpus.md")
    arguments = parser.parse_args()
    trees = {f"torch=={importlib.metadata.version('torch')}": _installed("torch")}
    trees |= {package: _unpacked(package, arguments.folder) for package in PACKAGES}
    trees |= dict(tree.split("=", 1) for tree in arguments.tree)
    linted = [_lint(name, tree) for name, tree in trees.items()]
    text = report(linted, _judgements())
    if arguments.write:
        with open(TABLE, "w", encoding="utf-8") as table:
            table.write(text)
    print(text)
    return 0


def _installed(package: str) -> str:
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise SystemExit(f"{package} is not installed")
    return os.path.dirname(spec.origin)


def _unpacked(package: str, folder: str) -> str:
    home = os.path.join(folder, package)
    if not os.path.isdir(home):
        downloads = os.path.join(folder, "downloads", package)
        pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", downloads, package]
        subprocess.run(pip, check=True)
        for name in os.listdir(downloads):
            _unpack(os.path.join(downloads, name), home)
    return home


def _unpack(archive: str, home: str) -> None:
    if archive.endswith(".tar.gz"):
        with tarfile.open(archive) as tar:
            tar.extractall(home, filter="data")
    else:
        with zipfile.ZipFile(archive) as wheel:
            wheel.extractall(home)


def _lint(name: str, tree: str) -> Linted:
    command = [sys.executable, "-m", "holdfast", "lint", "--json", "--fail-on", "never", tree]
    answer = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    document: dict[str, Any] = json.loads(answer)
    package = re.split("==|@", name)[0]
    found = [
        Found(
            f"{package}/{os.path.relpath(one['file'], tree)}:{one['line']}",
            one["status"],
            one["slug"],
            one["summary"].replace("|", "\\|"),
        )
        for one in document["findings"]
    ]
    return Linted(name, document["files"], sorted(set(found)))


def _judgements() -> dict[Key, str]:
    """What was said before, by place, fault and status."""
    if not os.path.exists(TABLE):
        return {}
    with open(TABLE, encoding="utf-8") as table:
        rows = [row for line in table if (row := ROW.fullmatch(line.strip()))]
    return {(row["place"], row["slug"], row["status"]): row["said"] for row in rows}


def report(linted: list[Linted], judged: dict[Key, str]) -> str:
    lines = ["# holdfast lint on good code", "", *_preface(), "", *_totals(linted, judged), ""]
    lines += [
        "| package | files | errors | warnings | notes | not read |",
        "|---|---|---|---|---|---|",
    ]
    for one in linted:
        counts = collections.Counter(found.status for found in one.found)
        shown = " | ".join(str(counts[s]) for s in STATUSES)
        lines.append(f"| {one.name} | {one.files} | {shown} |")
    lines += ["", "| place | status | fault | what it says | judgement |", "|---|---|---|---|---|"]
    for one in linted:
        for found in one.found:
            said = judged.get(found.key, NOT_YET)
            lines.append(
                f"| `{found.place}` | {found.status} | {found.slug} | {found.summary} | {said} |"
            )
    return "\n".join(lines) + "\n"


def _totals(linted: list[Linted], judged: dict[Key, str]) -> list[str]:
    """How many of each status were judged how."""
    counts = collections.Counter(
        (found.status, judged.get(found.key, NOT_YET).partition(":")[0])
        for one in linted
        for found in one.found
    )
    lines = [f"| status | {' | '.join(VERDICTS)} |", "|---" * (len(VERDICTS) + 1) + "|"]
    for status in STATUSES:
        shown = " | ".join(str(counts[status, verdict]) for verdict in VERDICTS)
        lines.append(f"| {status} | {shown} |")
    return lines


def _preface() -> list[str]:
    return [
        "Made by `python -m bench.lint_corpus FOLDER --write`; the last column is a reviewer's.",
        "Libraries in their published versions, and checkouts for what packages lack: launch",
        "scripts, batch files, manifests, manuals.",
        "",
        "`right`: the reviewer would want to be told. `meant`: true, and on purpose here (a test",
        "of a hang, an example of what not to do). `arguable`: true, but of little use here.",
        "`wrong`: the rule is mistaken. No error may be wrong.",
    ]


if __name__ == "__main__":
    raise SystemExit(main())
