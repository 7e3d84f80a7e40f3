"""Where every machine of a job would name itself as the master: `hostname`, asked on each of them.

`$(hostname)` in a batch script is asked once, on the first machine, and rightly so; in the text of
`srun bash -c '…'` it is asked wherever that text runs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from holdfast.analysis.source.launch import command_line, master
from holdfast.analysis.source.source import Command, Launch, Source
from holdfast.findings import Place

_ASKED = re.compile(r"[\"']?(?:\$\(|`)\s*(?:hostname|uname\s+-n)\b")
_NODE_OF_SLURM = re.compile(r"SLURM_(?:NODEID|PROCID)")
_EVERYWHERE = frozenset({"srun", "pdsh", "clush", "pssh", "parallel-ssh", "mpirun", "mpiexec"})
_ONE_NODE = ("nodelist", "relative", "nodefile")
"""options by which srun chooses its machine"""


class OwnName(NamedTuple):
    place: Place
    by: str
    """what carries the text to every machine: 'srun', 'ssh'; 'Slurm' of a whole script; '' where
    a user starts it on each"""
    sure: bool
    """several machines for certain, and a launcher that waits for them at this address"""


def found(source: Source) -> Iterator[OwnName]:
    yield from _of_a_script_on_every_node(source)
    for place, launch in _said(source):
        asker = _asker(source, place)
        carrier = _carrier(source, asker, launch) if asker is not None else ""
        if carrier and launch is not None:
            several = _several(source, launch)
            if several is not None:
                yield OwnName(place, carrier, several)


def _of_a_script_on_every_node(source: Source) -> Iterator[OwnName]:
    """Its node rank is given from outside, and nothing in it goes to other machines."""
    if any(launch.kind in ("sbatch", "srun") for launch in source.launches):
        return
    own = [launch for launch in source.launches if not launch.around]
    ranks = [launch.flag("node-rank", "machine-rank") for launch in own]
    slurm = any(rank is not None and _NODE_OF_SLURM.search(rank.value) for rank in ranks)
    asked = {s.place for s in master.variables(source) if slurm and _ASKED.match(s.written)}
    yield from (OwnName(place, "Slurm", sure=False) for place in sorted(asked))
    for launch, rank in zip(own, ranks, strict=True):
        flag = launch.flag(*master.ADDRESS_FLAGS)
        if rank is None or rank.known or flag is None or flag.known or (launch.machines or 1) < 2:
            continue
        variable = master.origin(source, flag)
        place, text = (variable.place, variable.written) if variable else (flag.place, flag.value)
        certain = variable is None or not variable.arms
        looped = launch.command is not None and launch.command.loops
        if _ASKED.match(text) and certain and not looped and place not in asked:
            yield OwnName(place, "", sure=False)


def _said(source: Source) -> Iterator[tuple[Place, Launch | None]]:
    """What asks for the own name, with the launch that gets the answer."""
    starts = [one for one in source.launches if one.kind not in ("sbatch", "srun")]
    for setting in master.variables(source):
        if _ASKED.match(setting.written) and not setting.arms:
            after = (one for one in starts if one.place > setting.place)
            yield setting.place, next(after, None)
    for launch in starts:
        for name in (*master.ADDRESS_FLAGS, "rdzv-endpoint"):
            flag = launch.flag(name)
            if flag is not None and not flag.known and _ASKED.match(flag.value):
                yield flag.place, launch


def _asker(source: Source, place: Place) -> Command | None:
    """The `hostname` written there; one that a variable brought along is further up."""
    return next(
        (
            command
            for command in source.commands
            if command.name in ("hostname", "uname")
            and command.place.line == place.line
            and command.place >= place
        ),
        None,
    )


def _carrier(source: Source, asker: Command, launch: Launch | None) -> str:
    """What takes it to every machine of the job; '' where only one is asked."""
    carriers = [name for name in asker.wrappers if name in command_line.REMOTE]
    if not carriers or launch is None or not set(carriers) & set(launch.around):
        return ""
    rank = launch.flag("node-rank", "machine-rank")
    if rank is not None and rank.known:
        return ""  # a line for one machine, and perhaps the first
    if carriers[0] == "srun":
        steps = [one for one in source.launches if one.kind == "srun" and one.place < asker.place]
        return "srun" if steps and not _is_for_one(steps[-1]) else ""
    return carriers[0] if carriers[0] in _EVERYWHERE or asker.loops else ""


def _is_for_one(step: Launch) -> bool:
    counts = (command_line.number(step.flag("nodes")), command_line.number(step.flag("ntasks")))
    return 1 in counts or step.flag(*_ONE_NODE) is not None


def _several(source: Source, launch: Launch) -> bool | None:
    """True: it waits for several machines at this address. None: it does not, or only perhaps."""
    machines = source.machines or 1
    if launch.kind not in command_line.TORCHRUN:
        return False if machines > 1 else None
    told, count = launch.flag("nnodes"), command_line.nodes(launch)
    used = launch.flag(*master.ADDRESS_FLAGS, "rdzv-endpoint")
    if told is None or launch.flag("standalone") is not None or used is None or used.known:
        return None
    fewest = count[0] if count is not None else machines if not told.known else 1
    return True if fewest > 1 else None
