"""The quick checks of this machine before `holdfast run` starts anything on it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

from holdfast.cli import streams
from holdfast.errors import ConfigError

if TYPE_CHECKING:
    from holdfast.analysis.machine import MachineFacts
    from holdfast.run.launch.flags import RunFlags

NETWORK = ("interfaces", "own_name", "settings", "accelerators", "software")
"""facts by which Gloo and NCCL choose an interface"""


def refuse_missing_script(flags: RunFlags) -> None:
    """One sentence instead of every rank's own. A module, a program or another interpreter finds
    its file by its own rules."""
    typed = flags.torchrun
    script = typed.training_script
    if typed.module or typed.no_python or "PYTHON_EXEC" in os.environ or script == "-":
        return
    if not os.path.exists(script):
        raise ConfigError(
            f"no script at {script}", hint=f"check the path; the current folder is {os.getcwd()}"
        )


def look_first(flags: RunFlags, world: int, facts: Iterable[str] | None = None) -> MachineFacts:
    """All facts of this machine, or these only."""
    from holdfast.check.collect import collect
    from holdfast.check.plan import Flags, make_plan
    from holdfast.check.reader_list import readers
    from holdfast.cli.choices import DEADLINE

    meant = Flags(
        port=flags.port,
        port_flag="--master-port",
        nproc_per_node=world,
        log_folder=flags.runs,
    )
    plan = make_plan(meant, os.environ, accelerators=0)
    wanted = readers() if facts is None else readers(facts)
    return collect(plan, wanted, seconds=DEADLINE, say=streams.narrate)


def without_environment(facts: MachineFacts) -> MachineFacts:
    """The environment holds secrets; settings.json has it redacted."""
    import msgspec

    plan = msgspec.structs.replace(facts.plan, environment={})
    return msgspec.structs.replace(facts, plan=plan)


def refuses(facts: MachineFacts) -> str:
    """The quick checks of this machine; an error stops the start, with the finding: its headline.
    Errors of GPUs are said, and the start goes on: a job may not need them."""
    from holdfast import catalogue
    from holdfast.findings import Status
    from holdfast.view import text

    findings = catalogue.check(facts, catalogue.choose([], []))
    errors = [f for f in findings if f.status is Status.ERROR]
    if not errors:
        return ""
    colour = text.wants_colour(sys.stderr)
    streams.remark("\n\n".join(text.finding(item, colour=colour) for item in errors))
    stops = next(filter(catalogue.stops_a_start, errors), None)
    if stops is None:
        streams.remark("starting: a job that uses no GPU is not affected")
        return ""
    streams.remark("hint: fix it, or skip the checks with `holdfast run --no-check …`")
    return f"{stops.slug}: {stops.summary}"
