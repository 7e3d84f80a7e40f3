"""HOST:PORT as people and NCCL_RAS_ADDR write it."""

from __future__ import annotations

import pytest

from holdfast.analysis.ras.address import RasAddress, of_environment, parse


@pytest.mark.parametrize(
    ("typed", "host", "port"),
    [
        ("", "localhost", 28028),
        ("n1", "n1", 28028),
        ("n1:5", "n1", 5),
        (":5", "localhost", 5),
        ("[::1]:5", "::1", 5),
        ("[fe80::1%eth0]", "fe80::1%eth0", 28028),
        ("0.0.0.0:7", "127.0.0.1", 7),
        ("[::]:7", "::1", 7),
    ],
)
def test_what_is_typed(typed: str, host: str, port: int) -> None:
    assert parse(typed) == RasAddress(host, port)


@pytest.mark.parametrize(
    "typed", ["a b", "n1:", "n1:x", "n1:0", "n1:70000", "::1", "http://n1", "a;b", "$(x)"]
)
def test_what_is_no_address(typed: str) -> None:
    with pytest.raises(ValueError, match=r"HOST:PORT|port must be"):
        parse(typed)


def test_a_jobs_environment() -> None:
    assert str(of_environment({})) == "localhost:28028"
    assert str(of_environment({"NCCL_RAS_ADDR": "[::1]:9"})) == "[::1]:9"
    assert of_environment({"NCCL_RAS_ADDR": "127.0.0.1:9"}).on_this_machine
    assert not of_environment({"NCCL_RAS_ADDR": "n1:9"}).needs_no_resolver
