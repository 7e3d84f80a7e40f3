"""A master address that is asked for when the job starts, and what the answer may be.

MASTER_ADDR=$(scontrol show hostnames … | head -n 1 || echo localhost)    each node itself
--master-addr $(hostname -I)                           all addresses, with blanks between
--rdzv-endpoint $SLURM_LAUNCH_NODE_IPADDR:29500        set by srun only, for its tasks
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from holdfast.analysis.source.launch import master
from holdfast.analysis.source.source import Source, SourceKind, SourceSetting
from holdfast.analysis.source.source_problem import SourceProblem
from holdfast.findings import Place

FALLBACK = re.compile(r"\|\|\s*echo\s+[\"']?(localhost|127\.[\d.]+|::1)[\"']?\s*[)`]")
ALL_ADDRESSES = re.compile(r"(?:\$\(|`)\s*hostname\s+(-I|--all-ip-addresses)\s*[)`]")
OWN_ADDRESS = re.compile(r"(?:\$\(|`)[^|]*\bhostname\s+(-i|--ip-address)\s*[)`]")
DEFAULT = re.compile(r"[\"']?\$\{\w+:?-")
SUBMITTER = "SLURM_LAUNCH_NODE_IPADDR"
FIRST_NODE = '$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)'
OVERWRITING = frozenset({"torchrun", "torch.distributed.launch", "deepspeed", "accelerate"})
"""launchers that set MASTER_ADDR themselves"""


class AskedAddress(NamedTuple):
    what: str
    """'MASTER_ADDR', '--rdzv-endpoint'"""
    text: str
    """as written, variables of the script filled in"""
    place: Place
    machines: int | None
    asker: str
    """'batch': the shell of a batch script, before srun starts anything; 'task': what srun starts
    in a batch script; '' where that is not known"""


def problems(source: Source) -> Iterator[SourceProblem]:
    for asked in _asked(source):
        if DEFAULT.match(asked.text):
            continue  # the user may set it
        several = (asked.machines or 1) > 1
        if several and (found := FALLBACK.search(asked.text)):
            yield _fallback(asked, found[1])
        elif found := ALL_ADDRESSES.search(asked.text):
            yield _several_addresses(asked, found[1])
        elif several and (found := OWN_ADDRESS.search(asked.text)):
            yield _resolved_by_itself(asked, found[1])
        elif SUBMITTER in asked.text and asked.asker != "task":
            yield _of_the_submitter(asked)


def _asked(source: Source) -> Iterator[AskedAddress]:
    batch = any(launch.kind == "sbatch" for launch in source.launches)
    started = (*source.launches, *source.started_by)
    if not OVERWRITING & {launch.kind for launch in started}:
        most = max((launch.machines or 1 for launch in started), default=None)
        for setting in master.variables(source):
            text = setting.written or setting.value
            asker = "" if not batch else "task" if _in_a_task(source, setting) else "batch"
            if not setting.known or source.kind is SourceKind.PYTHON:
                yield AskedAddress("MASTER_ADDR", text, setting.place, most, asker)
    for launch in source.launches:
        carried = launch.command.wrappers if launch.command else ()
        most = launch.machines or (source.machines if "srun" in launch.around else None)
        for name in (*master.ADDRESS_FLAGS, "rdzv-endpoint"):
            flag = launch.flag(name)
            if flag is not None and not flag.known:
                variable = master.origin(source, flag)
                asker = "" if not batch else "task" if {"bash", "sh"} & set(carried) else "batch"
                place, text = flag.place, flag.value
                if variable is not None:
                    place, text = variable.place, variable.written
                yield AskedAddress(f"--{name}", text, place, most, asker)


def _in_a_task(source: Source, setting: SourceSetting) -> bool:
    """In the text of `srun bash -c '…'`."""
    tasks = [launch for launch in source.launches if launch.kind == "srun" and launch.command]
    words = [word for launch in tasks if launch.command for word in launch.command.words]
    said = f"{setting.name}="
    return any(said in word.text and word.place <= setting.place for word in words)


def _fallback(asked: AskedAddress, address: str) -> SourceProblem:
    return SourceProblem(
        "warning",
        f"{asked.what} falls back to {address} where the lookup fails",
        f"the job has {asked.machines} nodes: each would then wait for itself until the timeout, "
        "and the failed lookup, which is the cause, is hidden",
        f"let it fail: drop `|| echo {address}`, and test for an empty value",
        asked.place,
    )


def _several_addresses(asked: AskedAddress, option: str) -> SourceProblem:
    return SourceProblem(
        "warning",
        f"{asked.what} is what `hostname {option}` prints: all addresses of the machine",
        "they are printed in one line with blanks between and at the end; a machine with a second "
        "interface (InfiniBand, Docker's bridge) has no valid master address then",
        "take one: `$(hostname -I | awk '{print $1}')`, or the name of the first node",
        asked.place,
    )


def _resolved_by_itself(asked: AskedAddress, option: str) -> SourceProblem:
    return SourceProblem(
        "note",
        f"{asked.what} is what `hostname {option}` prints: the addresses of the machine's own name",
        "on Debian and Ubuntu that is 127.0.1.1 unless /etc/hosts was changed, and it may be "
        "several, with blanks between; the other nodes can use neither",
        f"name the node: `{FIRST_NODE}` in a Slurm job"
        if asked.asker
        else "use the name of node rank 0, or one address of it on the network that all share",
        asked.place,
    )


def _of_the_submitter(asked: AskedAddress) -> SourceProblem:
    if asked.asker == "batch":
        return SourceProblem(
            "warning",
            f"{SUBMITTER} is not set in a batch script",
            "srun sets it for the tasks that it starts; in the script itself it is empty, or left "
            "over from the shell that submitted the job",
            f"`MASTER_ADDR={FIRST_NODE}`",
            asked.place,
        )
    return SourceProblem(
        "note",
        f"{asked.what} is the machine where srun was started ({SUBMITTER})",
        "that is the first node only if srun runs in a batch script; typed on a login node, or "
        "after salloc, it is the login node, where no rank serves the store",
        f"name the first node of the job: `{FIRST_NODE}`",
        asked.place,
    )
