"""Which process raised an exception: a rank, or the launcher that starts the ranks. Pure.

By the files in its traceback. A launcher runs no training code, so what it raises is never a
rank's; where it is about a connection, the network, the store or a lost node is behind it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from holdfast.analysis.scene import secondary_errors
from holdfast.analysis.scene.scene import Frame

_LAUNCHER_FILE = re.compile(
    r"(?:^|/)(?:torch/distributed/(?:run|launch)\.py$"
    r"|torch/distributed/launcher/"
    r"|torch/distributed/elastic/(?:agent|rendezvous)/"
    r"|nvidia_resiliency_ext/fault_tolerance/(?:launcher\.py$|_ft_rendezvous|_torch_elastic_compat/)"
    r"|accelerate/commands/launch\.py$"
    r"|deepspeed/launcher/"
    r"|horovod/runner/(?:launch|gloo_run|mpi_run|js_run)\.py$"
    r"|bin/(?:torchrun|accelerate|deepspeed|horovodrun|ft_launcher)$)"
)
_IN_A_RANK = frozenset({"run_script_path"})
"""functions of those files that a rank executes: torchrun --run-path"""
_CALLED = re.compile(r"The client socket has (?:failed to connect|timed out)")
_ABOUT_A_CONNECTION = re.compile(r"(?:Dist(?:Network|Store|Backend)?|Rendezvous\w*)Error")


def is_launcher(frames: Iterable[Frame]) -> bool:
    """Raised in the launcher's process."""
    told = list(frames)
    return any(_LAUNCHER_FILE.search(frame.file.replace("\\", "/")) for frame in told) and not any(
        frame.function in _IN_A_RANK for frame in told
    )


def network_consequence(kind: str, text: str, *, launcher: bool) -> str:
    """Of an exception in a log: is it about another process or machine? A rank's may be about its
    own port; what the launcher raises of this kind is not."""
    name = kind.rpartition(".")[2]
    told = _ABOUT_A_CONNECTION.fullmatch(name)
    return secondary_errors.LOST_PEER if told and (launcher or _CALLED.match(text)) else ""
