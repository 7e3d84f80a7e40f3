"""`holdfast explain` beside NVRx's restart agent and analyser of dumps, and beside torchfrtrace.

    python -m bench.explain_peers --nvrx CHECKOUT [--python PYTHON] [--wrecks DIR ...] [--out FILE]

CHECKOUT is a clone of NVIDIA/nvidia-resiliency-ext; PYTHON an interpreter that has its `httpx`
(this one by default). Its agent runs without a language model, as it does before any model has
answered. Every tool is asked about the same wrecks: tests/wrecks and those of DIR.
"""

from __future__ import annotations

import argparse
import datetime as dt
import functools
import json
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

WRECKS = Path(__file__).parent.parent / "tests" / "wrecks"
PAGE = Path(__file__).parent / "explain_peers.md"
DUMP = re.compile(r"(?:fr|rank|dump)_?(\d+)$")
SECONDS = 300
# NVRx's packages load torch and more when they are imported; its agent and analyser need neither.
BARE_PACKAGES = """
import runpy, sys, types
root, module, *packages = sys.argv[1].split(",")
for name in packages:
    bare = types.ModuleType(name)
    bare.__path__ = [f"{root}/{name.replace('.', '/')}"]
    sys.modules[name] = bare
sys.argv = [module, *sys.argv[2:]]
runpy.run_module(module, run_name="__main__", alter_sys=True)
"""
ATTRIBUTION = "nvidia_resiliency_ext.attribution"


class Wreck(NamedTuple):
    name: str
    folder: Path
    cause: str
    accept: tuple[str, ...]
    culprits: frozenset[int]
    """the guilty ranks, where ranks are to blame"""

    @property
    def files(self) -> list[Path]:
        found = (file for file in sorted(self.folder.rglob("*")) if file.is_file())
        return [file for file in found if file.name != "truth.json"]

    @property
    def dumps(self) -> dict[int, Path]:
        return {int(m[1]): file for file in self.files if (m := DUMP.search(file.name))}

    @property
    def logs(self) -> list[Path]:
        """Ranks first, the launcher last: it speaks when they are dead."""
        dumps = set(self.dumps.values())
        rest = [file for file in self.files if file not in dumps]
        return sorted(rest, key=lambda file: file.name.startswith("launcher"))


class Answer(NamedTuple):
    cause: str = ""
    """in the words of the tool; '' where it says nothing"""
    ranks: frozenset[int] = frozenset()
    """the ranks it blames"""
    seconds: float = 0.0


Tool = Callable[[Wreck, Path], Answer]


def wrecks(folders: Iterable[Path]) -> list[Wreck]:
    found = []
    for folder in (one for base in folders for one in sorted(base.iterdir())):
        if not (folder / "truth.json").exists():
            continue
        truth = json.loads((folder / "truth.json").read_text())
        named = " ".join(truth.get("all", [truth.get("culprit") or ""]))
        accept = tuple(truth.get("accept", ()))
        ranks = frozenset(int(rank) for rank in re.findall(r"\brank (\d+)", named))
        found.append(Wreck(folder.name, folder, truth["cause"], accept, ranks))
    return found


def _run(words: list[str]) -> tuple[str, float]:
    began = time.monotonic()
    done = subprocess.run(words, capture_output=True, text=True, timeout=SECONDS, check=False)
    return done.stdout + done.stderr, time.monotonic() - began


def holdfast(wreck: Wreck, _: Path) -> Answer:
    files = [str(file) for file in wreck.files]
    said, seconds = _run([sys.executable, "-m", "holdfast", "explain", "--json", *files])
    diagnoses = json.loads(said)["diagnoses"]
    if not diagnoses:
        return Answer(seconds=seconds)
    culprit = diagnoses[0].get("culprit") or {}
    ranks = {*culprit.get("ranks", ()), culprit.get("rank")} - {None}
    return Answer(diagnoses[0]["slug"], frozenset(ranks), seconds)


class Nvrx(NamedTuple):
    python: str
    source: Path

    def words(self, module: str, *bare: str) -> list[str]:
        """The command of a module, whose packages `bare` are not imported with all they load."""
        packages = ("nvidia_resiliency_ext", ATTRIBUTION, *(f"{ATTRIBUTION}.{b}" for b in bare))
        told = ",".join((str(self.source), f"{ATTRIBUTION}.{module}", *packages))
        return [self.python, "-c", BARE_PACKAGES, told]


def restart_agent(nvrx: Nvrx, wreck: Wreck, scratch: Path) -> Answer:
    """It reads one log: those of a wreck are put one after another."""
    log = scratch / "all.log"
    log.write_text("\n".join(file.read_text(errors="replace") for file in wreck.logs))
    said, seconds = _run([*nvrx.words("restart_agent.cli"), "--disable-l1", str(log)])
    result = next((line for line in said.splitlines() if line.startswith("{")), "")
    failure = json.loads(result)["primary_failure"] if result else None
    if not failure:
        return Answer("" if result else f"stops: {_last_line(said)}", seconds=seconds)
    rank = failure["rank"]
    ranks = frozenset({int(rank)}) if rank is not None else frozenset()
    return Answer(failure["failure_class"], ranks, seconds)


def dump_analyser(nvrx: Nvrx, wreck: Wreck, scratch: Path) -> Answer:
    """NVRx's CollectiveAnalyzer: a table of groups with the ranks that are missing from each."""
    _copy_dumps(wreck, scratch, "_dump_")
    words = nvrx.words("trace_analyzer.fr_attribution", "trace_analyzer", "orchestration")
    said, seconds = _run([*words, "--fr-path", str(scratch), "--emit-stdout"])
    table = [line.split("|") for line in said.splitlines() if re.match(r"\d+ +\|", line)]
    missing = {int(n) for row in table for n in re.findall(r"\d+", row[-1])}
    if not table and "Traceback" in said:
        return Answer(f"stops: {_last_line(said)}", seconds=seconds)
    return Answer("missing ranks" if missing else "", frozenset(missing), seconds)


def torchfrtrace(wreck: Wreck, scratch: Path) -> Answer:
    program = shutil.which("torchfrtrace", path=str(Path(sys.executable).parent))
    if not program:
        raise SystemExit("explain_peers: torchfrtrace is not installed beside this Python")
    _copy_dumps(wreck, scratch, "fr_")
    said, seconds = _run([program, str(scratch), "-p", "fr_", "--allow-incomplete-ranks"])
    blamed = {int(n) for n in re.findall(r"Culprit rank (\d+)", said)}
    for group in re.findall(r"missing ranks?:? \{([\d, ]+)\}", said, re.IGNORECASE):
        blamed |= {int(n) for n in group.split(",")}
    if not blamed and "Traceback" in said:
        return Answer(f"stops: {_last_line(said)}", seconds=seconds)
    return Answer("culprit or missing rank" if blamed else "", frozenset(blamed), seconds)


def _copy_dumps(wreck: Wreck, scratch: Path, prefix: str) -> None:
    for rank, file in wreck.dumps.items():
        shutil.copy(file, scratch / f"{prefix}{rank}")


def _last_line(said: str) -> str:
    return said.strip().splitlines()[-1][:60] if said.strip() else "no word"


# --- judging -----------------------------------------------------------------------------------


def who(wreck: Wreck, answer: Answer) -> str:
    """Whether it points at the guilty rank; causes have other names in other tools."""
    if not answer.cause or answer.cause.startswith("stops"):
        return "right" if wreck.cause == "healthy" and not answer.cause else "nothing"
    if wreck.cause == "healthy":
        return "false alarm"
    if not wreck.culprits:
        return "right"  # all ranks may say it
    if not answer.ranks:
        return "no rank"
    if answer.ranks <= wreck.culprits:
        return "right"
    return "right among others" if answer.ranks & wreck.culprits else "innocent rank"


OUTCOMES = ("right", "right among others", "no rank", "nothing", "innocent rank", "false alarm")


def ask(tool: Tool, all_wrecks: list[Wreck]) -> list[tuple[Wreck, Answer]]:
    asked = []
    for wreck in all_wrecks:
        with tempfile.TemporaryDirectory() as scratch:
            asked.append((wreck, tool(wreck, Path(scratch))))
        print(".", end="", file=sys.stderr, flush=True)
    return asked


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--nvrx", type=Path, required=True)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--wrecks", type=Path, nargs="*", default=[])
    parser.add_argument("--out", type=Path, default=PAGE)
    arguments = parser.parse_args()
    nvrx = Nvrx(arguments.python, arguments.nvrx.resolve() / "src")
    everything = wrecks([WRECKS, *arguments.wrecks])
    dumped = [wreck for wreck in everything if wreck.dumps]
    logs: dict[str, Tool] = {
        "holdfast explain": holdfast,
        "NVRx restart agent": functools.partial(restart_agent, nvrx),
    }
    dumps: dict[str, Tool] = {
        "holdfast explain": _only_dumps,
        "NVRx dump analyser": functools.partial(dump_analyser, nvrx),
        "torchfrtrace": torchfrtrace,
    }
    by_log = {name: ask(tool, everything) for name, tool in logs.items()}
    by_dump = {name: ask(tool, dumped) for name, tool in dumps.items()}
    arguments.out.write_text(_page(by_log, by_dump))


def _only_dumps(wreck: Wreck, scratch: Path) -> Answer:
    _copy_dumps(wreck, scratch, "fr_")
    return holdfast(wreck._replace(folder=scratch), scratch)


# --- the page ----------------------------------------------------------------------------------


def _page(
    by_log: dict[str, list[tuple[Wreck, Answer]]], by_dump: dict[str, list[tuple[Wreck, Answer]]]
) -> str:
    today = dt.datetime.now(dt.timezone.utc).date()
    asked = by_log["holdfast explain"]
    ours = sum(a.cause in {w.cause, *w.accept} or _silent_and_healthy(w, a) for w, a in asked)
    return "\n".join([
        "# `explain` beside its peers",
        "",
        f"Made by `python -m bench.explain_peers` on {today}; not edited by hand.",
        "",
        "Which rank does a tool point at, where a rank is to blame? *Right among others*: it names",
        "several, the guilty one with them. *Innocent rank*: it names one that only waited. Where",
        "no rank is to blame any answer counts as right. Whether the *cause* is right is not",
        "counted, since the tools name causes in words of their own (NVRx: `observed_exception`);",
        f"`holdfast explain` leads with the right cause in {ours} of {len(asked)}.",
        "",
        "NVRx's restart agent reads one log (the ranks' one after another, the launcher's last),",
        "without a language model: what it says before any model answers. It is made to",
        "choose between STOP and RESTART; the rank is that of its primary failure.",
        "",
        "## Logs and dumps of each wreck",
        "",
        *_counts(by_log),
        "",
        "## Dumps alone",
        "",
        *_counts(by_dump),
        "",
        "## Each wreck",
        "",
        *_each(by_log, by_dump),
        "",
    ])  # fmt: skip


def _silent_and_healthy(wreck: Wreck, answer: Answer) -> bool:
    return wreck.cause == "healthy" and not answer.cause


def _counts(asked: dict[str, list[tuple[Wreck, Answer]]]) -> list[str]:
    lines = [
        f"| tool | wrecks | {' | '.join(OUTCOMES)} | median time, to holdfast's |",
        "|---|---|" + "---|" * (len(OUTCOMES) + 1),
    ]
    own = statistics.median(a.seconds for _, a in asked["holdfast explain"])
    for name, answers in asked.items():
        outcomes = [who(wreck, answer) for wreck, answer in answers]
        ratio = statistics.median(a.seconds for _, a in answers) / own
        counts = " | ".join(str(outcomes.count(one)) for one in OUTCOMES)
        lines.append(f"| {name} | {len(answers)} | {counts} | {ratio:.1f} |")
    return lines


def _each(
    by_log: dict[str, list[tuple[Wreck, Answer]]], by_dump: dict[str, list[tuple[Wreck, Answer]]]
) -> list[str]:
    columns = {**by_log, **{f"{n}, dumps": rows for n, rows in by_dump.items()}}
    said = {n: {w.name: _cell(w, a) for w, a in rows} for n, rows in columns.items()}
    lines = [f"| wreck | truth | {' | '.join(columns)} |", "|---|---|" + "---|" * len(columns)]
    for wreck, _ in by_log["holdfast explain"]:
        guilty = ", ".join(str(rank) for rank in sorted(wreck.culprits))
        truth = f"{wreck.cause}, rank {guilty}" if guilty else wreck.cause
        cells = " | ".join(said[name].get(wreck.name, "-") for name in columns)
        lines.append(f"| {wreck.name} | {truth} | {cells} |")
    return lines


def _cell(wreck: Wreck, answer: Answer) -> str:
    if not answer.cause:
        return "nothing"
    named = ", ".join(str(rank) for rank in sorted(answer.ranks))
    mark = "**wrong**: " if who(wreck, answer) in ("innocent rank", "false alarm") else ""
    return f"{mark}{answer.cause.replace('|', '/')}" + (f", {named}" if named else "")


if __name__ == "__main__":
    main()
