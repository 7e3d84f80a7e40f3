"""Where the ranks of one machine meet: a fresh store for every round.

torch 2.13 keeps one store, one port and its stale keys over a restart, and a second group then
reads the addresses of dead ranks. Here every round has a store of its own. Stock torchrun may
use it as well: `torchrun --rdzv-backend holdfast …`.
"""

from __future__ import annotations

import os
from datetime import timedelta

from torch.distributed import TCPStore  # type: ignore[attr-defined]  # it is documented
from torch.distributed.elastic.rendezvous import (
    RendezvousClosedError,
    RendezvousHandler,
    RendezvousInfo,
    RendezvousParameters,
)
from torch.distributed.elastic.rendezvous.api import RendezvousStoreInfo

from holdfast.analysis.machine.rendezvous import split_endpoint
from holdfast.errors import EnvironmentFailure
from holdfast.run.launch import ports

BACKEND = "holdfast"
STORE_TIMEOUT = timedelta(minutes=5)
"""for the agent's own few questions; the ranks choose their own"""


class OneMachine(RendezvousHandler):
    """All ranks are on this node, so no other has to be waited for."""

    def __init__(self, *, run_id: str, port: int = 0) -> None:
        """`port` 0 takes a free one in each round; any other is used in all of them."""
        self._run_id = run_id
        self._port = port
        self._server: TCPStore | None = None
        self._restart_wanted = False
        self._closed = False

    def get_backend(self) -> str:
        return BACKEND

    @property
    def use_agent_store(self) -> bool:
        """The ranks use our store instead of starting one in rank 0."""
        return True

    def next_rendezvous(self) -> RendezvousInfo:
        """The agent calls this when the ranks of the round before are gone."""
        if self._closed:
            raise RendezvousClosedError("the job is over")
        self._forget_round()
        self._restart_wanted = False
        with ports.listen_on(self._port) if self._port else ports.listen_anywhere() as listener:
            port = listener.getsockname()[1]
            self._server = TCPStore(
                ports.LOOPBACK,
                port,
                is_master=True,
                wait_for_workers=False,
                timeout=STORE_TIMEOUT,
                master_listen_fd=os.dup(listener.fileno()),  # the store closes what it is given
            )
        # The agent keeps what it is given until the next round has formed. A connection does not
        # hold the port; the server itself would, and could only be robbed of its socket, whereupon
        # its thread spins (torch 2.8 with a warning for every turn).
        store = TCPStore(ports.LOOPBACK, port, wait_for_workers=False, timeout=STORE_TIMEOUT)
        return RendezvousInfo(
            store, 0, 1, RendezvousStoreInfo(master_addr=ports.LOOPBACK, master_port=port)
        )

    def _forget_round(self) -> None:
        """The server ends with its last reference, and its port is free again."""
        self._server = None

    def request_restart(self) -> None:
        """Make the agent re-form the group at its next look, whatever its own budget says."""
        self._restart_wanted = True

    def num_nodes_waiting(self) -> int:
        """Never asks the store: its calls ignore their timeout when the server is frozen."""
        return int(self._restart_wanted)

    def is_closed(self) -> bool:
        return self._closed

    def set_closed(self) -> None:
        self._closed = True

    def get_run_id(self) -> str:
        return self._run_id

    def shutdown(self) -> bool:
        self._closed = True
        self._forget_round()
        return True


def create(parameters: RendezvousParameters) -> OneMachine:
    if parameters.max_nodes > 1:
        raise EnvironmentFailure(
            "the rendezvous backend 'holdfast' supports one node only",
            hint="for several nodes use `--rdzv-backend c10d`",
        )
    _, port = split_endpoint(parameters.endpoint)
    return OneMachine(run_id=parameters.run_id, port=port or 0)
