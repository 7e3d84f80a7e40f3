from __future__ import annotations

import pytest

from holdfast.analysis.logs import sxid_table, xid_table
from holdfast.analysis.logs.xid_table import XidAction, XidBlame


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


@pytest.mark.parametrize(
    ("numbers", "action"),
    [
        ((13, 31, 32, 80, 94), XidAction.RESTART_PROGRAM),
        (
            (46, 62, 64, 95, 109, 110, 119, 120, 136, 140, 143, 144, 149, 155, 156),
            XidAction.RESET_GPU,
        ),
        ((37, 38, 43, 44, 63, 66, 67, 92, 93, 121, 137, 141, 160), XidAction.NOTHING),
        ((74,), XidAction.RESET_ALL),
        ((79,), XidAction.REBOOT),
        ((54,), XidAction.RESEAT),
        ((151,), XidAction.RESTART_VM),
        ((78,), XidAction.UPDATE),
    ],
)
def test_the_action_is_the_one_of_nvidias_catalogue(
    numbers: tuple[int, ...], action: XidAction
) -> None:
    assert {number: xid_table.look_up(number).action for number in numbers} == dict.fromkeys(
        numbers, action
    )


@pytest.mark.parametrize("number", [106, 107, 162, 163])
def test_messages_for_information_are_no_trouble(number: int) -> None:
    assert xid_table.look_up(number).blame is XidBlame.AFTERMATH


def test_a_link_that_survived_needs_no_repair() -> None:
    line = "NVRM: Xid (PCI:0000:04:00): 149, NETIR_BER_EVENT Nonfatal XC0 i0 Link 00 (0x13 0x0)"
    assert not xid_table.judge(149, line).needs_repair
    assert xid_table.judge(149, line.replace("Nonfatal", "Fatal")).needs_repair
    # 'nonfatal' in the words of another Xid means nothing
    assert xid_table.judge(79, "nonfatal").needs_repair


def test_the_advice_names_the_gpu() -> None:
    assert "`sudo nvidia-smi -r -i 3`" in xid_table.look_up(95).advice("3")
    assert "{" not in "".join(xid_table.look_up(n).advice("0") for n in range(200))


SWITCH = "nvidia-nvswitch0: SXid (PCI:0000:05:00.0): {}, {}, Link 30"


@pytest.mark.parametrize(
    ("number", "word", "fatal", "action"),
    [
        (20034, "Fatal", True, XidAction.RESET_ALL),
        (24007, "Fatal", True, XidAction.RESET_ALL),
        (22003, "Fatal", True, XidAction.REBOOT),
        (23009, "Fatal", True, XidAction.REBOOT),
        (12028, "Non-fatal", False, XidAction.NOTHING),
        (11021, "Non-fatal", False, XidAction.NOTHING),
        (19084, "Non-fatal", False, XidAction.RESET_ALL),
        (99999, "Non-fatal", False, XidAction.NOTHING),
        (99999, "Fatal", True, XidAction.RESET_ALL),
    ],
)
def test_a_switch_says_itself_how_bad_it_is(
    number: int, word: str, fatal: bool, action: XidAction
) -> None:
    judged = sxid_table.judge(number, SWITCH.format(number, word))
    assert (judged.fatal, judged.action) == (fatal, action)
    assert judged.meaning
