"""Where the ranks of a job meet: a fresh store for every round.

torch 2.13 keeps one store, one port and its stale keys over a restart, and a second group then
reads the addresses of dead ranks. Here every round has a store of its own, which one launcher
serves. Stock torchrun may use it on one node: `torchrun --rdzv-backend holdfast …`.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from datetime import timedelta

from torch.distributed import (  # type: ignore[attr-defined]  # they are documented
    HashStore,
    Store,
    TCPStore,
)
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
from holdfast.run.nodes.round_source import RoundPlace, RoundsOfOneNode, RoundSource

BACKEND = "holdfast"
STORE_TIMEOUT = timedelta(minutes=5)
"""for the agent's own few questions; the ranks choose their own"""
FIRST_CONNECTION = 10.0
"""seconds in which the store of another node has to take a connection"""


def _no_signal() -> signal.Signals | None:
    return None


class RoundRendezvous(RendezvousHandler):
    """Asks a source for the next round, and gives the agent the store of it."""

    def __init__(
        self,
        *,
        run_id: str,
        source: RoundSource,
        told: Callable[[], signal.Signals | None] = _no_signal,
    ) -> None:
        """`told`: a signal that ends the wait for a round."""
        self._run_id = run_id
        self._source = source
        self._told = told
        self._server: TCPStore | None = None
        self._restart_wanted = False
        self._closed = False
        self.place: RoundPlace | None = None
        """in the round that was formed last"""

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
        self.place = place = self._source.next_round(self._open_store, self._told)
        return RendezvousInfo(
            self._connection(place),
            place.node_rank,
            len(place.start.nodes),
            RendezvousStoreInfo(master_addr=place.address, master_port=place.start.store_port),
        )

    def _open_store(self, addresses: Sequence[str], port: int) -> int:
        """At one address where all other nodes reach this one at it, else at all."""
        where = addresses[0] if len(set(addresses)) == 1 else ports.everywhere(addresses)
        with ports.listen_on(port, where) if port else ports.listen_anywhere(where) as listener:
            port = listener.getsockname()[1]
            self._server = TCPStore(
                addresses[0],
                port,
                is_master=True,
                wait_for_workers=False,
                timeout=STORE_TIMEOUT,
                master_listen_fd=os.dup(listener.fileno()),  # the store closes what it is given
            )
        return port

    def _connection(self, place: RoundPlace) -> Store:
        """The agent keeps what it is given until the next round has formed. A connection does not
        hold the port; the server itself would, and could only be robbed of its socket, whereupon
        its thread spins (torch 2.8 with a warning for every turn).

        Our agent asks nothing of it. On other nodes it gets a store of its own: torch's client
        blocks for minutes, deaf to its timeout, where the server's machine is frozen or cut off.
        """
        address, port = place.address, place.start.store_port
        if self._server is not None:
            return TCPStore(address, port, wait_for_workers=False, timeout=STORE_TIMEOUT)
        ports.try_to_connect(address, port, seconds=FIRST_CONNECTION, to=place.start.store_node)
        return HashStore()

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


def create(parameters: RendezvousParameters) -> RoundRendezvous:
    """For stock torchrun, whose agent numbers the ranks itself."""
    if parameters.max_nodes > 1:
        raise EnvironmentFailure(
            "`torchrun --rdzv-backend holdfast` supports one node only",
            hint="for several nodes start `holdfast run` with the same options on each of them",
        )
    _, port = split_endpoint(parameters.endpoint)
    return RoundRendezvous(
        run_id=parameters.run_id, source=RoundsOfOneNode(nproc=1, port=port or 0)
    )
