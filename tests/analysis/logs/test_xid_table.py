from __future__ import annotations

import pytest

from holdfast.analysis.logs import xid_table
from holdfast.analysis.logs.xid_table import XidBlame


@pytest.mark.parametrize("number", [48, 64, 74, 79, 95, 144, 149])
def test_hardware_is_said_with_confidence(number: int) -> None:
    assert xid_table.look_up(number).blame is XidBlame.HARDWARE
    assert xid_table.look_up(number).confidence > 0.8


@pytest.mark.parametrize("number", [13, 31, 43])
def test_a_bug_of_the_program_is_no_broken_gpu(number: int) -> None:
    assert xid_table.look_up(number).blame is XidBlame.PROGRAM
    assert xid_table.look_up(number).confidence < 0.5


def test_an_unknown_number_is_said_with_little_confidence() -> None:
    assert xid_table.look_up(9999).confidence < 0.5
