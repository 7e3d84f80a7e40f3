"""holdfast makes distributed PyTorch training start, keep going and explain itself.

The map of this tree, in the order data flows through it:

    facts/        what can be known of one machine: frozen nouns, no I/O
    model.py      what we say about it: Evidence, Finding, Fault, Page
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
    paths.py      the name of every file of a run
    job/          A JOB -> RANKS -> SIGNALS -> VERDICT -> ACTION: launch, watch, decide, journal
    view/         draws the nouns as text and JSON
    cli/          one file per verb
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.rank.init import Run, init
    from holdfast.rank.limit import limit
    from holdfast.rank.phase import beat, phase
    from holdfast.rank.wait import CollectiveTimeout, wait

__version__ = "0.1.0"

__all__ = ["CollectiveTimeout", "Run", "beat", "init", "limit", "phase", "wait"]

_HOME = {
    "CollectiveTimeout": "wait",
    "Run": "init",
    "beat": "phase",
    "init": "init",
    "limit": "limit",
    "phase": "phase",
    "wait": "wait",
}


if not TYPE_CHECKING:  # a type checker shall see the real names, and no others

    def __getattr__(name: str) -> object:
        """The library's names, imported when used: `holdfast --help` has no need of them."""
        if name not in _HOME:
            raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
        return getattr(import_module(f"holdfast.rank.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
