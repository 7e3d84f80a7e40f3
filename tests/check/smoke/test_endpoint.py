from __future__ import annotations

from holdfast.check.smoke import endpoint
from tests.faults.machines import a_plan


def test_the_master_is_the_jobs_own_where_this_machine_can_be_it() -> None:
    assert endpoint.choose(a_plan(port=29500)) == ("127.0.0.1", 29500, "")
    assert endpoint.choose(a_plan(port=1, master_addr="localhost"))[:2] == ("localhost", 1)
    elsewhere = a_plan(port=1, master_addr="192.0.2.7", max_nodes=2)
    chosen = endpoint.choose(elsewhere)
    assert chosen.address == "127.0.0.1"
    assert "192.0.2.7 is not this machine" in chosen.remark
    # On one machine a wrong address is the job's own fault, and the test must show it.
    assert endpoint.choose(a_plan(port=1, master_addr="192.0.2.7")).address == "192.0.2.7"


def test_an_ipv6_master_is_written_with_brackets() -> None:
    assert str(endpoint.Endpoint("::1", 29500, "")) == "[::1]:29500"
    assert str(endpoint.Endpoint("node-a", 29500, "")) == "node-a:29500"


def test_a_name_that_does_not_resolve_is_not_here() -> None:
    assert not endpoint.is_here("no-such-host.invalid")
    assert endpoint.is_here("127.0.0.1")
