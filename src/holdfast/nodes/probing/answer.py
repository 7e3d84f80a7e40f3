"""One node's part: it listens for the others, and tries its own ways to them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence

from holdfast.analysis.nodes import Outcome, PathSizes, PortKind, Reached, Target
from holdfast.nodes.probing.messages import OpenedListeners, OpenListeners, TriedPaths, TryPaths
from holdfast.system.paths.listeners import probe_listeners
from holdfast.system.paths.loss import losses
from holdfast.system.paths.reach import reach
from holdfast.system.paths.routes import routes
from holdfast.system.paths.sizes import sizes


async def open_listeners(
    request: OpenListeners, listening: contextlib.AsyncExitStack
) -> OpenedListeners:
    """They close with the stack."""
    opened = await listening.enter_async_context(
        probe_listeners(
            request.node, request.addresses, request.master_port or None, key=request.key
        )
    )
    return OpenedListeners(trial=request.trial, listening=opened)


async def try_paths(request: TryPaths) -> TriedPaths:
    """Sizes and loss count only where a connect got through: elsewhere they would say it again.
    Loss is measured meanwhile: on a lossy path each part takes seconds, and a job waits for it."""
    deep = [
        target
        for target in request.targets
        if target.kind is PortKind.EPHEMERAL and target.node in request.in_depth
    ]
    (reached, sized), lost = await asyncio.gather(
        _reach_then_sizes(request, deep), losses(request.node, deep, key=request.key)
    )
    passed = _passed(reached)
    return TriedPaths(
        trial=request.trial,
        routes=routes(request.node, request.targets),
        reach=reached,
        sizes=sized,
        losses=tuple(one for one in lost if one.target in passed),
    )


async def _reach_then_sizes(
    request: TryPaths, deep: Sequence[Target]
) -> tuple[tuple[Reached, ...], tuple[PathSizes, ...]]:
    reached = await reach(request.node, request.targets, key=request.key, seconds=request.seconds)
    passed = _passed(reached)
    found = await sizes(request.node, [one for one in deep if one in passed], key=request.key)
    return reached, found


def _passed(reached: Sequence[Reached]) -> set[Target]:
    return {one.target for one in reached if one.outcome is Outcome.OK}
