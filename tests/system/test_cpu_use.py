"""The processor time of every process; machine/test_load shows it with a real stranger."""

from __future__ import annotations

from holdfast.system import cpu_use
from holdfast.system.cpu_use import Sample
from holdfast.system.proc import parse_stat


def a_sample(ticks: int, *, parent: int = 1, started: int = 5, when: float = 0.0) -> Sample:
    stat = f"7 (python) R {parent}{' 0' * 9} {ticks} 0{' 0' * 6} {started} 4096 1"
    return Sample(parse_stat(stat), when)


def test_strangers_are_those_who_worked_and_are_not_ours() -> None:
    before = {
        10: a_sample(0),
        11: a_sample(0),
        12: a_sample(0, parent=11),
        13: a_sample(0),
        14: a_sample(900, started=4),
    }
    after = {
        10: a_sample(100, when=1.0),
        11: a_sample(100, when=1.0),  # the family
        12: a_sample(100, parent=11, when=1.0),  # and its child
        13: a_sample(180, when=1.0),
        14: a_sample(990, started=6, when=1.0),  # another process with the same number
        15: a_sample(100, when=1.0),  # new: nothing to compare with
    }
    found = cpu_use.strangers(before, after, family=11, above=0.5)
    assert list(found.items()) == [(13, 1.8), (10, 1.0)]
