"""What a launcher says that has lost its coordinator: pure, from its lease and the other nodes."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.faults.network import network_partition, peer_unreachable
from holdfast.faults.processes import store_host_lost
from holdfast.findings import Verdict
from holdfast.run.nodes.link.interface import CoordinatorLost

HEARD_LATELY = 2.5
"""seconds: then it is not the coordinator that is silent"""


def judge(
    lost: CoordinatorLost, *, own: str, coordinator: str, answers: Mapping[str, bool | None]
) -> Verdict:
    """`answers`: whether the machine of each other node answers, the coordinator's among them;
    None where it would not answer such a question even when all is well."""
    if lost.farewell == "silent" and lost.silent < HEARD_LATELY:
        return peer_unreachable.coordinator_does_not_hear(
            own=own, coordinator=coordinator, words=lost.words
        )
    others = {node: answer for node, answer in answers.items() if node != coordinator}
    gone = [node for node, answer in others.items() if answer is False]
    if lost.farewell == "silent" and gone and answers.get(coordinator) is not True:
        return network_partition.cut_off_from_coordinator(
            own=own,
            coordinator=coordinator,
            reached=[node for node, answer in others.items() if answer],
            unreached=gone,
            words=lost.words,
            silent=lost.silent,
        )
    return store_host_lost.coordinator_lost(
        coordinator=coordinator,
        own=own,
        farewell=lost.farewell,
        words=lost.words,
        silent=lost.silent,
        answers=answers.get(coordinator),
    )
