"""Where the nodes meet, and what the job's exit code is: the decisions of the driver."""

from __future__ import annotations

import pytest

from holdfast.run.hosts.driver import candidates, common_place, job_code


def test_loopback_is_no_place_to_meet() -> None:
    own = ("127.0.0.1", "::1", "fd00::7", "fe80::1", "10.0.0.7", "192.168.1.7")
    assert candidates(own, "gpu-1") == ("10.0.0.7", "192.168.1.7", "fd00::7", "gpu-1")
    assert candidates(("10.0.0.7",), "10.0.0.7") == ("10.0.0.7",)
    assert candidates((), "gpu-1") == ("gpu-1",)


@pytest.mark.parametrize(
    ("reached", "place"),
    [
        ([["10.0.0.7", "a"], ["a", "10.0.0.7"]], "10.0.0.7"),
        ([["10.0.0.7", "172.16.0.7"], ["172.16.0.7"]], "172.16.0.7"),
        ([["a"], ["a", "10.0.0.7"]], "a"),
        ([["10.0.0.7"], []], None),
    ],
)
def test_all_others_must_reach_it(reached: list[list[str]], place: str | None) -> None:
    assert common_place(("10.0.0.7", "172.16.0.7", "a"), reached) == place


@pytest.mark.parametrize(
    ("codes", "code"),
    [
        ([0, 0], 0),
        ([124, 1], 124),
        ([0, 143], 0),
        ([137, 124], 124),
        ([137, 0, 124], 124),
        ([137, None], 137),
        ([None, 124], 124),
        ([1, None], 1),
        ([None, None], None),
    ],
)
def test_the_first_node_decides_unless_it_was_killed(
    codes: list[int | None], code: int | None
) -> None:
    assert job_code(codes) == code
