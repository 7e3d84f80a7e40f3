"""What can be known of several machines at once, and of the paths between them.

One `NodesFacts` holds what every node said of itself and what each saw of the others. As in
`machine`, every answer is a value or `Unread` with the reason.
"""

from holdfast.analysis.nodes.facts import Absence, ClockOffset, Node, NodesFacts, StoreBelief
from holdfast.analysis.nodes.paths import (
    Listening,
    NotListening,
    Outcome,
    PathLoss,
    PathSizes,
    PortKind,
    Reached,
    RouteTo,
    SizeProbe,
    Target,
)

__all__ = [
    "Absence",
    "ClockOffset",
    "Listening",
    "Node",
    "NodesFacts",
    "NotListening",
    "Outcome",
    "PathLoss",
    "PathSizes",
    "PortKind",
    "Reached",
    "RouteTo",
    "SizeProbe",
    "StoreBelief",
    "Target",
]
