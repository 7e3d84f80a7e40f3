"""Two rounds of our rendezvous, and what a client of each sees; prints JSON.

two_rounds.py PORT      0 for a free port in each round
"""

import json
import socket
import sys
import time

from torch.distributed import TCPStore  # type: ignore[attr-defined]
from torch.distributed.elastic.rendezvous import RendezvousClosedError, RendezvousInfo

from holdfast.run.launch.rendezvous import RoundRendezvous
from holdfast.run.nodes.round_source import RoundsOfOneNode


def client(port: int) -> TCPStore:
    return TCPStore("127.0.0.1", port, is_master=False)


def port_of(info: RendezvousInfo) -> int:
    assert info.bootstrap_store_info
    return info.bootstrap_store_info.master_port


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


handler = RoundRendezvous(run_id="seven", source=RoundsOfOneNode(nproc=1, port=int(sys.argv[1])))
first = handler.next_rendezvous()  # kept, as the agent keeps it
one = port_of(first)
client(one).set("stale", "address of a dead rank")
waiting = [handler.num_nodes_waiting()]
handler.request_restart()
waiting.append(handler.num_nodes_waiting())
second = handler.next_rendezvous()
two = port_of(second)
waiting.append(handler.num_nodes_waiting())
stale = client(two).check(["stale"])
listening = listens(two)
same_server = second.store.check(["stale"])
handler.shutdown()
after = listens(two)
busy = time.process_time()
time.sleep(0.5)  # an old server without a socket would spin in its thread
busy = time.process_time() - busy
try:
    handler.next_rendezvous()
    refused = ""
except RendezvousClosedError as problem:
    refused = type(problem).__name__
print(
    json.dumps(
        {
            "ports": [one, two],
            "waiting": waiting,
            "stale": stale or same_server,
            "listening": listening,
            "after": after,
            "busy": busy,
            "closed": handler.is_closed(),
            "refused": refused,
            "place": [second.rank, second.world_size, handler.get_run_id(), handler.get_backend()],
            "agent_store": handler.use_agent_store,
        }
    )
)
