"""What a launcher that cannot meet its coordinator says."""

from __future__ import annotations

import pytest

from holdfast import catalogue
from holdfast.nodes.reach.meeting import MeetingPlan
from holdfast.run.nodes.meeting_sight import MeetingSight, in_words

OWN = ("127.0.0.1", "10.0.0.2", "fe80::2")
HERE = ("10.0.0.1",)


def plan(*, by_address: bool = True) -> MeetingPlan:
    return MeetingPlan(
        nodes=2,
        nodes_source="--nnodes",
        port=29400,
        port_source="--rdzv-endpoint",
        host="node-a",
        host_source="--rdzv-endpoint",
        by_address=by_address,
    )


@pytest.mark.parametrize(
    ("sight", "sentence", "hint", "slug"),
    [
        (
            MeetingSight(resolve_error="Name or service not known"),
            "node-a (--rdzv-endpoint) does not resolve on this node: Name or service not known",
            "getent ahosts node-a",
            "dns-failure",
        ),
        (
            MeetingSight(resolved=("127.0.1.1",), error="ECONNREFUSED"),
            "node-a (--rdzv-endpoint) is 127.0.1.1 here, which is this machine itself",
            "name node 0 by an address that this node can reach",
            "hostname-misresolves",
        ),
        (
            MeetingSight(resolved=HERE, error="ECONNREFUSED"),
            (
                "node-a:29400 (10.0.0.1) refuses connections: that machine is up, and no launcher "
                "listens there yet"
            ),
            "start `holdfast run` on node-a",
            "master-not-listening",
        ),
        (
            MeetingSight(resolved=HERE, error="ETIMEDOUT"),
            (
                "nothing comes back from node-a:29400 (10.0.0.1): a firewall drops it, or no "
                "machine has this address"
            ),
            "let port 29400 in",
            "peer-unreachable",
        ),
        (
            MeetingSight(resolved=HERE, error="ETIMEDOUT", no_neighbour=True),
            "no machine answers at node-a:29400 (10.0.0.1) (no neighbour answers for it)",
            "is this the address of a node?",
            "wrong-master-address",
        ),
        (
            MeetingSight(resolved=HERE, error="ENETUNREACH"),
            "(no route to that network)",
            "ip route get 10.0.0.1",
            "wrong-master-address",
        ),
        (
            MeetingSight(resolved=HERE, answered="torch's store"),
            "a store of torch listens at node-a:29400 (10.0.0.1), not holdfast",
            "start all nodes with `holdfast run`",
            "foreign-job-on-port",
        ),
        (
            MeetingSight(resolved=HERE, answered="something else"),
            "something listens at node-a:29400 (10.0.0.1), and it is not holdfast",
            "ss -ltnp",
            "port-in-use",
        ),
    ],
)
def test_it_says_what_it_sees_its_name_and_what_to_do(
    sight: MeetingSight, sentence: str, hint: str, slug: str
) -> None:
    said = in_words(plan(), sight, own=OWN)
    assert sentence in said.sentence
    assert hint in said.hint
    assert said.slug == slug
    assert catalogue.by_slug(slug)


def test_an_address_that_no_node_has_is_named_beside_those_that_this_one_has() -> None:
    sight = MeetingSight(resolved=HERE, error="ETIMEDOUT")
    said = in_words(plan(), sight, own=OWN)
    assert said.sentence.endswith("none of this node's addresses (10.0.0.2) is 10.0.0.1")
    assert said.hint.endswith("if this machine is meant (NAT), start it with --rdzv-conf is_host=1")


def test_a_node_that_knows_its_rank_is_not_told_of_its_addresses() -> None:
    sight = MeetingSight(resolved=HERE, error="ETIMEDOUT")
    said = in_words(plan(by_address=False), sight, own=OWN)
    assert "none of this node's addresses" not in said.sentence
    assert "--node-rank" not in said.hint
