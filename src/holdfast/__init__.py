"""holdfast makes distributed PyTorch training start, keep going and explain itself.

The map of this tree, in the order data flows through it:

    facts/        what can be known of one machine: frozen nouns, no I/O
    model.py      what we say about it: Evidence, Finding, Verdict, Diagnosis, Page
    fault.py      a fault: its name, its faces, and how they speak
    wording.py    how we say durations, sizes, processes
    nic_filter.py how NCCL and Gloo read the names of interfaces they are given
    addresses.py  which interface carries an address, and what kind it is
    rendezvous.py where the ranks meet: master, endpoint, port
    errors.py     exceptions that carry what to do
    probe/        small tools that touch the world: bind, connect, fork with a deadline
    machine/      A MACHINE -> FACTS: one reader per kind of fact
    variables/    which program reads which environment variable
    faults/       THE CATALOGUE: one file per fault, pure
    catalogue.py  finds the faults, their pages, and asks them
    smoke/        A FEW RANKS -> which layer fails
    beat_page.py  a rank's page in shared memory
    rank/         inside a rank: the hook, and the library below
    signals.py    what can be seen of a running job: frozen nouns
    collectives/  who is in which collective, who waits for whom
    consequences.py, endings.py, hold_up.py, scene_words.py   a job's scene, in words
    joining.py, numbering.py   ranks on their way into the group
    surroundings.py, starvation.py   who shares the processors, and whether ranks wait for a core
    paths.py      the name of every file of a run
    job/          A JOB -> RANKS -> SIGNALS -> VERDICT -> ACTION: launch, watch, decide, journal
    manifest.py   what a checkpoint says of itself
    kept.py, lost_time.py, refusal.py   what was saved, what that costs, why a resume was refused
    checkpoint/   A STEP -> PROOF -> RESUME: save, commit, verify, resume, the place in the data
    remains/      what is left of a job: the nouns, and wordings that many faults share
    inference/    from wreckage to suspects: who waited, who spoke, who did not
    wreckage/     WRECKAGE -> DIAGNOSIS: open, scan, sort to ranks, assemble, diagnose
    source/       what a user wrote: frozen nouns, and Python with its names resolved
    lint/         WHAT A USER WROTE -> FINDINGS: walk, read each language, link, judge
    judged.py     what `env` says of settings and clocks: frozen nouns
    settings/     AN ENVIRONMENT -> EVERY SETTING AND EVERY CLOCK IN FORCE
    examples/     what holdfast says when it meets each fault; generated
    view/         draws the nouns as text and JSON
    cli/          one file per verb
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.checkpoint import cadence
    from holdfast.checkpoint.sampler import Sampler
    from holdfast.checkpoint.save import Checkpoint
    from holdfast.checkpoint.state import State
    from holdfast.rank.init import Run, init
    from holdfast.rank.limit import limit
    from holdfast.rank.phase import beat, phase
    from holdfast.rank.wait import CollectiveTimeout, wait

__version__ = "0.1.0"

__all__ = [
    "Checkpoint",
    "CollectiveTimeout",
    "Run",
    "Sampler",
    "State",
    "beat",
    "cadence",
    "init",
    "limit",
    "phase",
    "wait",
]

_HOME = {
    "Checkpoint": "checkpoint.save",
    "CollectiveTimeout": "rank.wait",
    "Run": "rank.init",
    "Sampler": "checkpoint.sampler",
    "State": "checkpoint.state",
    "beat": "rank.phase",
    "cadence": "checkpoint",
    "init": "rank.init",
    "limit": "rank.limit",
    "phase": "rank.phase",
    "wait": "rank.wait",
}


if not TYPE_CHECKING:  # a type checker shall see the real names, and no others

    def __getattr__(name: str) -> object:
        """The library's names, imported when used: `holdfast --help` has no need of them."""
        if name not in _HOME:
            raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
        home = f"holdfast.{_HOME[name]}"
        if name == "cadence":  # a module itself
            return import_module(f"{home}.{name}")
        return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
