"""`holdfast env`: every setting and timeout of a job, and whether it takes effect."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from holdfast.cli import streams
from holdfast.cli.choices import FAIL_ON, add_deadline
from holdfast.errors import ConfigError

if TYPE_CHECKING:
    from holdfast.analysis.variables.status import SettingStatus, VariableInfo
    from holdfast.findings import Finding

SUMMARY = "show every setting and timeout of a job, and whether it takes effect"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "holdfast env [options] [NAME …] [-- COMMAND …]"
    parser.epilog = (
        "After -- comes the job as you would start it: its variables, flags and script count, "
        "and nothing is run. holdfast env -- NCCL_DEBUG=INFO torchrun --nproc-per-node 8 train.py"
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="explain these variables; NCCL_IB_* for a family"
    )
    parser.add_argument("--nnodes", metavar="N", help="machines of the job, or MIN:MAX")
    add_deadline(parser)
    out = parser.add_argument_group("what to print")
    out.add_argument("--all", action="store_true", help="also the whole table, set or not")
    out.add_argument(
        "--export",
        nargs="?",
        const="sh",
        choices=["sh", "json"],
        help="the least environment this machine and job need, for eval (normally nothing)",
    )
    out.add_argument(
        "--preset",
        choices=["first-run", "production"],
        help="export what helps to see (first-run), or what keeps evidence (production)",
    )
    out.add_argument("--json", action="store_true", help="one JSON document on stdout")
    out.add_argument(
        "--fail-on",
        choices=FAIL_ON,
        default="never",
        help="exit with 1 from this status on (default: never; `holdfast lint --env` judges)",
    )


def cut_command(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """What is ours, and the job behind the first `--`."""
    if "--" not in words:
        return list(words), []
    at = words.index("--")
    return list(words[:at]), list(words[at + 1 :])


def run(arguments: argparse.Namespace) -> int:
    command: list[str] = getattr(arguments, "command", [])
    names: list[str] = arguments.names
    if arguments.all and names:
        raise ConfigError("--all shows every variable: leave out the names, or --all")
    if arguments.export or arguments.preset:
        if names or arguments.all:
            raise ConfigError("an export is for the whole job: leave out the names and --all")
        return _export(arguments, command)
    if names:
        return _explain(names, command, arguments)
    return _show(command, arguments)


# --- everything that is set -----------------------------------------------------------------------


def _show(command: list[str], arguments: argparse.Namespace) -> int:
    from holdfast.analysis import variables
    from holdfast.check.readers.settings import read_overridden
    from holdfast.cli.env_job import read_job
    from holdfast.env import setting_status, timeout_order, timeouts_in_force
    from holdfast.view import document, env, text

    job, remarks = read_job(command, arguments, also=(), brief=False)
    judged = (*setting_status.judge(job), *setting_status.added(job))
    lost = setting_status.lost(job, read_overridden(job.facts.plan))
    found = timeouts_in_force.timeouts(job)
    findings = timeout_order.findings(job, found)
    said = (*remarks, *timeouts_in_force.silences(job))
    rows = tuple(variables.everything().values()) if arguments.all else ()
    if arguments.json:
        answer = document.env(job.facts.software, (*judged, *lost), found, findings, said, rows)
        streams.answer(answer, encoding=document.ENCODING)
    else:
        width = streams.width()
        parts = [
            text.banner(job.facts, port=False),  # a launch may name another one
            env.settings(judged, lost, width=width, everything=arguments.all),
            env.timeouts(found, width=width),
            env.order(findings, colour=text.wants_colour(sys.stdout), width=width),
            env.remarks(said, width=width),
            env.table(rows, width=width),
        ]
        streams.answer("\n\n".join(part for part in parts if part))
    return _code(judged, findings, arguments.fail_on)


def _code(judged: Sequence[SettingStatus], findings: Sequence[Finding], fail_on: str) -> int:
    statuses = [*(one.status for one in judged), *(one.status for one in findings)]
    worst = max((status.concern for status in statuses), default=0)
    return int(worst >= FAIL_ON[fail_on])


# --- one variable ---------------------------------------------------------------------------------


def _explain(names: list[str], command: list[str], arguments: argparse.Namespace) -> int:
    from holdfast.cli.env_job import read_job
    from holdfast.env import setting_status, variable
    from holdfast.view import document, env

    families = {name: variable.family(name) for name in names if name.endswith(("*", "_"))}
    plain = [name.partition("=")[0] for name in names if name not in families]
    for name, rows in families.items():
        if not rows:
            better = variable.family(name.upper())
            raise ConfigError(
                f"no variable begins with {name.rstrip('*')!r}",
                hint=f"did you mean {name.upper()}?" if better else "holdfast env --all shows all",
            )
    job, _ = read_job(command, arguments, also=plain, brief=True)
    judged = setting_status.judge(job)
    asked = [variable.one(name, job, judged) for name in plain]
    answers = [answer for answer in asked if _is_known(answer)]
    if arguments.json and (answers or families):
        listed = [row for found in families.values() for row in found]
        streams.answer(document.env_variables(answers, listed), encoding=document.ENCODING)
    elif answers or families:
        tables = [env.table(rows, width=streams.width()) for rows in families.values()]
        streams.answer(
            "\n\n".join([*(env.one(a, width=streams.width()) for a in answers), *tables])
        )
    _insist_on_known([answer for answer in asked if not _is_known(answer)])
    return _code([found for found in judged if found.name in plain], (), arguments.fail_on)


def _is_known(answer: VariableInfo) -> bool:
    return bool(answer.row or answer.now or answer.read_by)


def _insist_on_known(unknown: Sequence[VariableInfo]) -> None:
    """Last: one slip among several names costs only its own answer."""
    if unknown:
        names = " and ".join(repr(answer.name) for answer in unknown)
        near = [name for answer in unknown for name in answer.near[: 6 // len(unknown) or 1]]
        raise ConfigError(
            f"holdfast does not know {names}, and {'it is' if len(unknown) == 1 else 'they are'} "
            "not set here",
            hint=f"did you mean {', '.join(near)}?" if near else "holdfast env --all shows all",
        )


# --- what to set ----------------------------------------------------------------------------------


def _export(arguments: argparse.Namespace, command: list[str]) -> int:
    from holdfast.cli.env_job import read_job
    from holdfast.env import export, presets, setting_status
    from holdfast.view import document

    job, _ = read_job(command, arguments, also=presets.wanted(), brief=False)
    made = export.export(job, setting_status.judge(job), arguments.preset or "", _folder())
    if arguments.export == "json" or arguments.json:
        lines = [(line.name, line.value, line.reason) for line in made.lines]
        streams.answer(document.env_export(lines, made.remarks), encoding=document.ENCODING)
    else:
        streams.answer(export.shell(made))
    return 0


def _folder() -> str:
    """Where logs may go: here, if one may write here; on clusters that is a shared disk."""
    import tempfile

    try:
        here = os.getcwd()
    except OSError:  # removed meanwhile
        return tempfile.gettempdir()
    return here if os.access(here, os.W_OK) else tempfile.gettempdir()
