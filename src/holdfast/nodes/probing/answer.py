"""One node's part: it listens for the others, and tries its own ways to them."""

from __future__ import annotations

import contextlib

from holdfast.analysis.nodes import Outcome, PortKind
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
    """Sizes and loss only where a connect got through: elsewhere they would say it again."""
    reached = await reach(request.node, request.targets, key=request.key, seconds=request.seconds)
    deep = [
        one.target
        for one in reached
        if one.outcome is Outcome.OK
        and one.target.kind is PortKind.EPHEMERAL
        and one.target.node in request.in_depth
    ]
    return TriedPaths(
        trial=request.trial,
        routes=routes(request.node, request.targets),
        reach=reached,
        sizes=await sizes(request.node, deep, key=request.key),
        losses=await losses(request.node, deep, key=request.key),
    )
