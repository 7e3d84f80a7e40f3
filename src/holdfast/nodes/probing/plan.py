"""Which node tries which paths; pure."""

from __future__ import annotations

from collections.abc import Container, Mapping

import msgspec

from holdfast.analysis.machine import CouldNotLook, MachineFacts
from holdfast.analysis.nodes import Outcome, Target
from holdfast.analysis.nodes.targets import data_addresses, measured_pairs
from holdfast.nodes.probing.messages import TriedPaths, TryPaths

PATH_SECONDS = 2.5
"""for one connect: the kernel repeats a lost SYN after 1 s, so one loss is not taken for a drop"""


def listening_addresses(facts: MachineFacts) -> tuple[tuple[str, str], ...]:
    try:
        return data_addresses(facts)
    except CouldNotLook:  # its interfaces could not be read: nothing to listen on
        return ()


def all_paths(
    targets: Mapping[str, tuple[Target, ...]], racks: Mapping[str, str], *, key: bytes
) -> dict[str, TryPaths]:
    """Every node to all others; sizes and loss between those that `measured_pairs` chooses."""
    measured = measured_pairs({name: racks.get(name, "") for name in targets})
    return {
        name: TryPaths(
            node=name,
            targets=tuple(t for other in targets if other != name for t in targets[other]),
            in_depth=tuple(target for source, target in measured if source == name),
            key=key,
            seconds=PATH_SECONDS,
        )
        for name in targets
    }


def without_lost(paths: TriedPaths, here: Container[str]) -> TriedPaths:
    """A node that was lost meanwhile took its listeners along: what then failed to reach it, or was
    lost on the way, says nothing of the path.
    """
    return msgspec.structs.replace(
        paths,
        reach=tuple(
            one for one in paths.reach if one.outcome is Outcome.OK or one.target.node in here
        ),
        sizes=tuple(one for one in paths.sizes if one.target.node in here),
        losses=tuple(one for one in paths.losses if one.target.node in here),
    )
