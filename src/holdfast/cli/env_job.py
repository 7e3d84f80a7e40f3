"""The job that `holdfast env` is asked about: machine, command line and script are read here."""

from __future__ import annotations

import argparse
import functools
import os
import re
import shlex
import time
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from holdfast.analysis.machine import Unread
from holdfast.analysis.variables.status import TYPED
from holdfast.errors import EnvironmentFailure
from holdfast.redaction import redact

if TYPE_CHECKING:
    from holdfast.analysis.machine import Plan
    from holdfast.analysis.source.source import Launch
    from holdfast.env.job import Asked, Job

LAUNCH_SCRIPTS = ("sbatch", "salloc", "qsub", "bsub", "bash", "sh", "source", ".")
ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
NODES = re.compile(r"\d{1,9}(?::\d{1,9})?")
ABOUT_NAMES = ("settings", "software", "variable_search")
ABOUT_ALL = (*ABOUT_NAMES, "interfaces", "routes", "own_name", "master_name", "rdma_devices",
             "rdma_ports", "accelerators")  # fmt: skip


class Typed(NamedTuple):
    """What came after `--`, taken apart."""

    settings: dict[str, str]
    """NAME=value in front, or after `env`"""
    time_limit: float | None
    """of `timeout N`"""
    rest: list[str]


def take_apart(words: Sequence[str]) -> Typed:
    """`A=1 env B=2 timeout 1h torchrun …`; the shell has expanded all of it already."""
    from holdfast.env.timeouts.schedulers import seconds_of_timeout

    settings: dict[str, str] = {}
    limit: float | None = None
    left = list(words)
    while left:
        if found := ASSIGNMENT.fullmatch(left[0]):
            settings[found[1]] = found[2]
        elif os.path.basename(left[0]) == "timeout":
            while len(left) > 1 and left[1].startswith("-"):
                # -s and -k take a word of their own.
                del left[1 : 3 if left[1] in ("-s", "-k", "--signal", "--kill-after") else 2]
            limit = seconds_of_timeout(left[1]) if len(left) > 1 else None
            del left[1:2]
        elif os.path.basename(left[0]) != "env":
            break
        del left[0]
    return Typed(settings, limit, left)


def read_job(
    command: Sequence[str], flags: argparse.Namespace, *, also: Collection[str], brief: bool
) -> tuple[Job, tuple[str, ...]]:
    """`also`: names to search the installed programs for; `brief`: only what these need.

    The second part is what could not be read, in a sentence each.
    """
    from holdfast.check.collect import collect
    from holdfast.check.reader_list import readers
    from holdfast.check.readers.variable_search import read_variable_search
    from holdfast.env.job import Job

    typed = take_apart(command)
    launches = _launches(typed.rest)
    given = {name: (value, TYPED) for name, value in typed.settings.items()}
    given |= _inner_settings(launches)
    environment = {**os.environ, **{name: value for name, (value, _) in given.items()}}
    plan = _plan(environment, launches, flags.nnodes)
    wanted = readers(ABOUT_NAMES if brief else ABOUT_ALL)
    wanted["variable_search"] = functools.partial(read_variable_search, also=tuple(also))
    facts = collect(plan, wanted, seconds=flags.deadline)
    if isinstance(facts.settings, Unread):
        raise EnvironmentFailure(
            f"the settings could not be read: {facts.settings.why}", hint="try --deadline 10"
        )
    script, asked, packages, remark = _script(launches)
    job = Job(
        facts=facts,
        launches=launches,
        asked=asked,
        frameworks=packages,
        script=script,
        time_limit=typed.time_limit,
        wall=time.time(),
        typed={name: origin for name, (_, origin) in given.items()},
    )
    return job, tuple(said for said in (_lost_file(environment), remark) if said)


def _lost_file(environment: Mapping[str, str]) -> str:
    """NCCL continues without a message where there is none; a FIFO can be read only once."""
    named = environment.get("NCCL_CONF_FILE", "")
    if not named or os.path.isfile(named):
        return ""
    lost = os.path.isdir(named) or not os.path.exists(named)
    how = "no file: NCCL continues without it" if lost else "no regular file: it is not read here"
    return f"NCCL_CONF_FILE names {redact(named)!r}, which is {how}"


def _launches(words: list[str]) -> tuple[Launch, ...]:
    """Of the command itself, or of the launch script it runs: `sbatch job.sh`, `bash launch.sh`."""
    if not words:
        return ()
    from holdfast.lint import walk
    from holdfast.lint.detect_language import Language
    from holdfast.lint.readers import shell

    found = shell.read(shlex.join(words), TYPED).launches
    if found or os.path.basename(words[0]) not in LAUNCH_SCRIPTS:
        return found
    script = next((word for word in words[1:] if os.path.isfile(word)), "")
    if not script:
        return ()
    text = walk.read_as(Language.SHELL, script)
    return () if isinstance(text, walk.UnreadFile) else shell.read(text.text, script).launches


def _inner_settings(launches: Sequence[Launch]) -> dict[str, tuple[str, str]]:
    """Exports of a launch script, `mpirun -x NAME=value`, `srun --export=NAME=value`; and where."""
    found: dict[str, tuple[str, str]] = {}
    for setting in (s for launch in launches for s in launch.settings):
        if setting.by == "unset":
            found.pop(setting.name, None)
        elif setting.known:
            file = setting.place.file
            where = TYPED if file == TYPED else f"{file}:{setting.place.line}"
            found[setting.name] = (setting.value, where)
    return found


def _plan(environment: Mapping[str, str], launches: Sequence[Launch], nnodes: str | None) -> Plan:
    """Of counts and addresses only what is sound: here a bad value is to be shown, not refused."""
    import msgspec

    from holdfast.check.plan import Flags, make_plan
    from holdfast.check.readers.devices import accelerator_nodes

    machines = max((x.machines or 0 for x in launches), default=0)
    told = nnodes or (str(machines) if machines else environment.get("PET_NNODES", ""))
    master = next((f.value for x in launches if (f := x.flag("master-addr")) and f.known), "")
    ranks = (x.flag("nproc-per-node", "num-gpus") for x in launches)
    counts = [int(f.value) for f in ranks if f and f.known and f.value.isdecimal()]
    flags = Flags(
        nproc_per_node=max(counts, default=0) or None,
        nnodes=told if NODES.fullmatch(told) and told[0] != "0" else nnodes,
        master_addr=master or environment.get("MASTER_ADDR") or None,
    )
    plan = make_plan(flags, {}, accelerators=len(accelerator_nodes()))
    return msgspec.structs.replace(plan, environment=dict(environment))


def _script(
    launches: Sequence[Launch],
) -> tuple[str, tuple[Asked, ...], frozenset[str], str]:
    """Its name, the timeouts it gives, what it imports; and why it could not be read."""
    from holdfast.env import script_timeouts
    from holdfast.lint import walk
    from holdfast.lint.detect_language import Language

    named = next((x.script for x in reversed(launches) if x.script), "")
    if not named or not os.path.isfile(named):
        return "", (), frozenset(), f"there is no file {named!r}" if named.endswith(".py") else ""
    text = walk.read_as(Language.PYTHON, named)
    if isinstance(text, walk.UnreadFile):
        return "", (), frozenset(), f"{named} could not be read: {text.why}"
    try:
        program = script_timeouts.read(text.text, named)
    except SyntaxError as problem:
        why = f"{problem.msg} (line {problem.lineno})"
        return "", (), frozenset(), f"{named} could not be read: {why}"
    except (ValueError, RecursionError, MemoryError):
        return "", (), frozenset(), f"{named} could not be read: it is nested too deeply"
    return named, script_timeouts.asked(program), script_timeouts.packages(program), ""
