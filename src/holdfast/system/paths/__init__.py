"""Probing the paths to other nodes, from this one: no root, nothing but ordinary sockets.

A node opens `probe_listeners`; the others then `reach` them, measure `sizes` and `loss`, and ask
their own kernel for the `routes`. Everything that is sent proves the check's key, so that
nothing else can answer for a node, and a stranger's bytes change nothing.
"""

from holdfast.system.paths.identity import boot_id
from holdfast.system.paths.listeners import probe_listeners
from holdfast.system.paths.loss import losses
from holdfast.system.paths.reach import reach
from holdfast.system.paths.routes import routes
from holdfast.system.paths.sizes import sizes

__all__ = ["boot_id", "losses", "probe_listeners", "reach", "routes", "sizes"]
