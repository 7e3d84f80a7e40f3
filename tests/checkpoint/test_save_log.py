"""When a failed save is said again, and what is said of it."""

from __future__ import annotations

import pytest

from holdfast.checkpoint.messages import SaveAnswer, SaveCommitted, SaveFailure
from holdfast.checkpoint.save_log import SaveLog, is_due, last_safe
from holdfast.checkpoint.save_schedule import SaveInterval


@pytest.mark.parametrize(
    ("now", "said", "due"),
    [
        (100.0, None, True),
        (159.0, 100.0, False),
        (200.0, 100.0, True),  # 100 s without a save when it was said, 200 s now
        (399.0, 200.0, False),
        (400.0, 200.0, True),
        (61.0, 2.0, False),  # a save a second: not a line a second
        (62.0, 2.0, True),
    ],
)
def test_said_again_when_the_time_without_a_save_has_doubled(
    now: float, said: float | None, due: bool
) -> None:
    assert is_due(now, said=said, safe_at=0.0) is due


def test_what_is_at_stake() -> None:
    assert last_safe(None, 20, 5.0) == "nothing is saved yet"
    assert last_safe(40, 200, 720.0) == "last safe step 40, 160 steps and 12 minutes ago"
    assert last_safe(40, 41, 2.0) == "last safe step 40, 1 step and 2 s ago"


def full(step: int) -> SaveAnswer:
    what = "No space left on device"
    return SaveAnswer(failed=SaveFailure(step=step, errno=28, what=what, where="/ckpts"))


def committed(step: int, *made_room: str) -> SaveAnswer:
    return SaveAnswer(
        committed=SaveCommitted(
            step=step, path="/ckpts/x", bytes=1, stall=0.0, seconds=0.0, made_room=made_room
        )
    )


def test_a_disk_that_stays_full_is_said_again_and_again_but_rarely(
    capfd: pytest.CaptureFixture[str],
) -> None:
    now = [0.0]
    log = SaveLog(SaveInterval(steps=10), clock=lambda: now[0])
    log.note(committed(40), safe=40)
    for step in range(50, 3_000, 10):
        now[0] += 60.0
        log.note(full(step), safe=40)
    said = capfd.readouterr().err.splitlines()
    assert [line.partition("last safe ")[2].partition(" and ")[0] for line in said] == [
        f"step 40, {steps} steps" for steps in (10, 20, 40, 80, 160, 320, 640, 1280, 2560)
    ]
    log.note(committed(3_000), safe=3_000)
    log.note(full(3_010), safe=3_000)
    assert "last safe step 3000, 10 steps and" in capfd.readouterr().err


def test_room_that_was_made_is_said_once(capfd: pytest.CaptureFixture[str]) -> None:
    log = SaveLog(SaveInterval(steps=10))
    for step in (30, 40):
        log.note(committed(step, f"step-0000000{step - 20}"), safe=step)
    said = capfd.readouterr().err
    assert said.count("the disk was full: removed step-000000010 to save step 30") == 1
    assert "step-000000020" not in said
