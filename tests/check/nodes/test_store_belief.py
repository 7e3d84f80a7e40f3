"""Our rule beside torch's own, on this machine."""

from __future__ import annotations

import socket

import pytest

from holdfast.check.nodes.store_belief import store_belief

torch_utils = pytest.importorskip("torch.distributed.elastic.rendezvous.utils")

HOSTS = [
    "localhost",
    "127.0.0.1",
    "127.9.9.9",
    "::1",
    "192.0.2.77",
    "no-such-host.invalid",
    socket.gethostname(),
    socket.getfqdn(),
    "0.0.0.0",
    "",
]


@pytest.mark.parametrize("host", HOSTS)
def test_we_believe_what_torch_believes(host: str) -> None:
    assert store_belief(host).hosts_it == torch_utils._matches_machine_hostname(host)


def test_the_reason_names_both_sides() -> None:
    believed = store_belief("192.0.2.77")

    assert not believed.hosts_it
    assert socket.gethostname() in believed.why
    assert "192.0.2.77" in believed.why
