"""The witness in one process: idle until torch is there and the process is known to be a rank."""

from __future__ import annotations

import atexit
import functools
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

from holdfast.rank import torch_import
from holdfast.rank.witness import breakages, training
from holdfast.rank.witness.complaint import safely
from holdfast.rank.witness.delivery import FOLDER
from holdfast.rank.witness.gate import Gate
from holdfast.rank.witness.record_file import RecordFile, is_below_a_rank
from holdfast.rank.witness.write_guard import WriteGuard, allowed_folders

LAUNCHERS = ("accelerate", "conda", "deepspeed", "ft_launcher", "holdfast", "mamba", "torchrun")
"""programs in Python that start ranks, and are none"""
LAUNCHER_MODULES = ("accelerate.commands.", "torch.distributed.", "holdfast")


def start(environment: Mapping[str, str]) -> None:
    if is_launcher(getattr(sys, "orig_argv", [])):
        return
    records = RecordFile(environment[FOLDER])
    os.register_at_fork(after_in_child=records.forget)
    guard: WriteGuard | None = None
    if "RANK" in environment or is_below_a_rank():
        folders = allowed_folders(environment, os.path.expanduser("~"))
        guard = WriteGuard(folders, lambda path: safely(lambda: records.refused(path)))
        guard.install()

    def done(torch: Any) -> None:
        safely(lambda: _install(torch, records, guard))
        if guard is not None:
            safely(lambda: guard.follow_torch(torch))

    torch_import.expect(begins=lambda: None, done=done)


def is_launcher(argv: list[str]) -> bool:
    """By its name: `python /usr/bin/accelerate …`, `python -m torch.distributed.run …`."""
    words = [word for word in argv[1:] if word == "-m" or not word.startswith("-")]
    if words[:1] == ["-m"]:
        return len(words) > 1 and f"{words[1]}.".startswith(LAUNCHER_MODULES)
    return os.path.basename(words[0]) in LAUNCHERS if words else False


def _install(torch: Any, records: RecordFile, guard: WriteGuard | None) -> None:
    if "RANK" in os.environ:
        records.begin_as_told()
    witness = training.TrainingWitness(torch, records)
    training.follow(torch, witness)
    if guard is not None:
        guard.saves = lambda: safely(witness.saves)
    if torch.distributed.is_available():
        _follow_the_group(torch, records)
        _break_before_the_group(torch, Gate(records))
    _at_exit(witness)


def _at_exit(witness: training.TrainingWitness) -> None:
    pid = os.getpid()

    def finish() -> None:
        if os.getpid() == pid:
            safely(witness.finish)

    atexit.register(finish)


def _follow_the_group(torch: Any, records: RecordFile) -> None:
    """Every way to make the default group passes through this private setter."""
    c10d = torch.distributed.distributed_c10d
    set_default: Callable[[Any], None] = c10d._update_default_pg  # noqa: SLF001

    @functools.wraps(set_default)
    def set_and_begin(group: Any) -> None:
        set_default(group)
        if group is not None:
            safely(lambda: records.begin(group.rank(), group.size()))

    c10d._update_default_pg = set_and_begin  # noqa: SLF001


def _break_before_the_group(torch: Any, gate: Gate) -> None:
    """Where the order is for step 0: when the script wants to join the others."""
    if not gate.is_next(0):
        return
    join = torch.distributed.init_process_group

    @functools.wraps(join)
    def break_and_join(*args: Any, **named: Any) -> Any:
        if order := gate.take(0):
            breakages.BREAKAGES[order.how](order)
        return join(*args, **named)

    for module in (torch.distributed, torch.distributed.distributed_c10d):
        module.init_process_group = break_and_join
