"""`holdfast explain PATH…`: what broke a job; `holdfast explain CODE|SLUG|WORD`: a fault's page."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from holdfast.analysis.job import run_paths
from holdfast.cli import runs, streams
from holdfast.errors import ConfigError, EnvironmentFailure

if TYPE_CHECKING:
    from holdfast.analysis.logs.wreckage import Wreckage
    from holdfast.findings import Evidence

SUMMARY = "what broke a job, from its logs and dumps; or the page of a fault, by its name"
STDIN = "-"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "words",
        nargs="*",
        metavar="PATH|CODE|SLUG|WORD",
        help="logs, dumps, folders, archives, - for stdin; 'latest': the newest run; or HOLD101, "
        "mtu, 'port'…",
    )
    parser.add_argument(
        "--pid",
        action="append",
        type=int,
        default=[],
        metavar="PID",
        help="a running rank, or a launcher of ranks: watched for a few seconds (repeatable)",
    )
    parser.add_argument(
        "--run", metavar="RUN", help="a holdfast run: its id, the beginning of its id, or 'latest'"
    )
    parser.add_argument(
        "--ras",
        nargs="?",
        const="",
        metavar="HOST:PORT",
        help="a running job, by asking NCCL's RAS (2.28.7 or newer); default: NCCL_RAS_ADDR, else "
        "localhost:28028",
    )
    parser.add_argument(
        "--rules",
        metavar="FILE",
        help="your own rules: a TOML file with [rules.NAME] tables (default: those that a run was "
        "started with, else [tool.holdfast.rules] of the nearest pyproject.toml)",
    )
    runs.add_folder_only(parser)
    parser.add_argument("--list", action="store_true", help="every fault, one line each")
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")


def run(arguments: argparse.Namespace) -> int:
    words: list[str] = arguments.words
    if arguments.list:
        return _show_pages("", arguments)
    if arguments.pid or arguments.run or arguments.ras is not None:
        return _explain_named_job(arguments)
    if not words and _is_piped_to():
        words = [STDIN]
    if not words:
        raise ConfigError(
            "nothing to explain: give a log, a folder or a fault's name",
            hint="holdfast explain --list shows every fault",
        )
    if words == [run_paths.LATEST] and not os.path.lexists(run_paths.LATEST):
        arguments.run = run_paths.LATEST
        return _explain_run(arguments)
    if len(words) == 1 and os.sep not in words[0] and _names_a_fault(words[0]):
        return _show_named(words[0], arguments)
    paths = [word for word in words if word == STDIN or os.path.lexists(word)]
    if len(paths) == len(words):
        return _explain(paths, arguments)
    missing = [word for word in words if word not in paths]
    if paths or any(os.sep in word for word in missing):
        raise ConfigError(f"there is no file or folder {missing[0]!r}")
    return _show_pages(" ".join(words), arguments)


def _explain_named_job(arguments: argparse.Namespace) -> int:
    if arguments.pid:
        return _explain_running(arguments.pid, arguments)
    return _explain_run(arguments) if arguments.run else _explain_ras(arguments)


def _names_a_fault(word: str) -> bool:
    """By its code or slug; other words are looked for in the pages, after files."""
    from holdfast import catalogue

    faults = [entry.fault for entry in catalogue.entries()]
    return any(word.lower() == fault.slug or word.upper() == fault.code for fault in faults)


def _show_named(name: str, arguments: argparse.Namespace) -> int:
    """Codes and slugs win over files, so that a name means the same in every folder."""
    if os.path.lexists(name):
        streams.remark(
            f"this is the page of a fault; to read the file of that name: holdfast explain ./{name}"
        )
    return _show_pages(name, arguments)


def _is_piped_to() -> bool:
    """Whether stdin has something: neither a terminal, nor /dev/null, nor closed."""
    if sys.stdin is None or sys.stdin.isatty():
        return False
    source = sys.stdin.buffer
    return not isinstance(source, io.BufferedReader) or bool(source.peek(1))


def _explain(paths: list[str], arguments: argparse.Namespace) -> int:
    from holdfast import catalogue
    from holdfast.cli.reading import Progress
    from holdfast.explain.gather import RuleChoice, gather
    from holdfast.system import rule_files

    chosen = [folder for path in paths for folder in _folders(path) or [path]]
    stdin = sys.stdin.buffer if sys.stdin else None
    loaded = rule_files.load(arguments.rules, os.getcwd())
    catalogue.refuse_names_of_faults(loaded.rules)
    if loaded.remark:
        streams.remark(loaded.remark)
    rules = RuleChoice(loaded.rules, typed=arguments.rules is not None)
    wreckage = gather(
        chosen, stdin=stdin, progress=Progress(chosen), rules=rules, gone=_gone(chosen)
    )
    _refuse_if_nothing_was_read(wreckage)
    return _answer(wreckage, arguments)


def _gone(paths: list[str]) -> dict[str, bool]:
    """Of folders of runs: whether their launcher is gone, or that cannot be seen from here; those
    that run are left out."""
    from holdfast.analysis.job.run_paths import RunPaths
    from holdfast.explain.read import run_folder
    from holdfast.run.runs import registry

    folders = {path: RunPaths(*os.path.split(path.rstrip("/") or path)) for path in paths
               if run_folder.looks_like(path)}  # fmt: skip
    states = {paths.folder: registry.read_run(paths).state for paths in folders.values()}
    return {
        folder: state is registry.RunState.LOST
        for folder, state in states.items()
        if state is not registry.RunState.RUNNING
    }


def _refuse_if_nothing_was_read(wreckage: Wreckage) -> None:
    """Where nothing could be read, 'nothing failed' would be wrong."""
    if any(source.size for source in wreckage.sources if source.kind != "unread"):
        return
    problems = [f"{source.name}: {source.problem}" for source in wreckage.sources if source.problem]
    if problems:
        raise EnvironmentFailure(f"nothing could be read: {'; '.join(problems[:3])}")
    raise ConfigError("nothing to read: what was given is empty")


def _folders(path: str) -> list[str]:
    """Of a folder of runs: each run is a job of its own, so only one is explained, but on all of
    its nodes that are here."""
    from holdfast.explain.read import run_folder
    from holdfast.run.runs import registry

    runs = registry.list_runs(path)
    if not runs:
        return run_folder.nodes_inside(path)
    newest = registry.parts(runs, "latest", where=path)
    if len({one.run for one in runs}) > 1:
        count = len({one.run for one in runs})
        streams.remark(f"{path} has {count} runs; explaining the newest, {newest[0].folder}")
    return [one.folder for one in newest]


def _explain_run(arguments: argparse.Namespace) -> int:
    """A run that is still going is watched; one that has ended is read from its folder."""
    from holdfast.explain.read import run_folder
    from holdfast.run.runs import registry

    listed = registry.list_runs(arguments.runs)
    folders = registry.parts(listed, arguments.run, where=arguments.runs)
    chosen = next((one for one in folders if one.state is registry.RunState.RUNNING), None)
    if chosen is None:
        return _explain([one.folder for one in folders], arguments)
    pids = run_folder.read(chosen.folder).story.newest
    if chosen.node:  # the journal has the ranks of all nodes; theirs are other processes here
        from holdfast.system import proc

        pids = {
            rank: pid
            for rank, pid in pids.items()
            if (row := proc.row_of(pid)) and row.parent == chosen.pid
        }
    if not pids:
        raise ConfigError(
            f"{chosen.id} has not started its ranks yet", hint="try again in a few seconds"
        )
    return _explain_running([pids[rank] for rank in sorted(pids)], arguments)


def _explain_running(pids: list[int], arguments: argparse.Namespace) -> int:
    from holdfast.explain import from_scene
    from holdfast.run.watch import attach, verdict

    streams.remark(f"watching for {attach.WATCHED:g} s, without touching the processes")
    job = attach.look(pids, ask_ras=arguments.ras is not None)
    scene, still = job.scene, job.still
    if job.guessed:
        streams.remark(
            "nothing outside these processes says their ranks: they are numbered in the order in "
            "which they were started"
        )
    said = verdict.judge(scene, standstill=all(view.rank in still for view in scene.ranks))
    stands = from_scene.stands_still(scene, still)
    wreckage = from_scene.wreckage(scene, said, standstill=stands, world=job.world)
    undecided = from_scene.undecided(scene, still, job.world)
    return _answer(wreckage, arguments, places=from_scene.places(scene), undecided=undecided)


def _explain_ras(arguments: argparse.Namespace) -> int:
    from holdfast.analysis.logs.wreckage import Wreckage
    from holdfast.analysis.ras import address
    from holdfast.explain import live_ras

    typed = arguments.ras or os.environ.get(address.SETTING, "")
    try:
        where = address.parse(typed)
    except ValueError as problem:
        raise ConfigError(
            f"--ras: {problem}", hint=f"for example --ras localhost:{address.PORT}"
        ) from None
    streams.remark(f"asking NCCL's RAS at {where} twice, {live_ras.APART:g} s apart")
    seen = live_ras.look(where)
    return _answer(Wreckage(ras=seen.answers), arguments, ras=live_ras.lines(seen))


def _answer(
    wreckage: Wreckage,
    arguments: argparse.Namespace,
    *,
    places: Sequence[Evidence] = (),
    ras: Sequence[str] = (),
    undecided: str = "",
) -> int:
    from holdfast import catalogue
    from holdfast.explain.diagnose import diagnose
    from holdfast.view import diagnosis, document

    report = diagnose(wreckage, (entry.fault for entry in catalogue.entries()))
    draw = document.diagnoses if arguments.json else diagnosis.report
    answer = draw(
        report.diagnoses,
        failed=report.failed,
        anomalies=report.anomalies,
        remarks=report.remarks,
        places=places,
        ras=ras,
        rules=report.rules,
        undecided=undecided or ("" if report.traces else diagnosis.NO_JOB),
    )
    streams.answer(answer, encoding=document.ENCODING if arguments.json else None)
    return 1 if report.failed else 0


def _show_pages(wanted: str, arguments: argparse.Namespace) -> int:
    from holdfast import catalogue
    from holdfast.view import document, text

    if arguments.list:
        pages = [entry.page for entry in catalogue.entries()]
    else:
        pages = catalogue.search(wanted)
    if len(pages) == 1:
        pages = [catalogue.with_example(pages[0])]
    if not pages:
        raise ConfigError(
            f"no fault's page mentions {wanted!r}, and no file has that name",
            hint="holdfast explain --list shows every fault",
        )
    if arguments.json:
        streams.answer(document.explain(pages), encoding=document.ENCODING)
    elif len(pages) == 1 and not arguments.list:
        streams.answer(text.page(pages[0]))
    else:
        streams.answer(text.page_list(pages))
    return 0
