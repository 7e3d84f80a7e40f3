"""A launcher that reports its own wall and monotonic clock, ten times a second:
HOST PORT NAME, the token in the environment."""

from __future__ import annotations

import os
import sys
import time

from holdfast.nodes.token import token_from_environment
from holdfast.run.nodes.link.launcher_link import JoinedLink
from holdfast.run.nodes.messages import NodeCard, NodeReport

if __name__ == "__main__":
    host, port, name = sys.argv[1:]
    token = token_from_environment(os.environ)
    assert token
    card = NodeCard(name=name, identity=f"{name}-1", nproc=1)
    link = JoinedLink(host, int(port), token=token, card=card, seconds=60.0)
    print("joined", flush=True)
    while not link.lost():
        now, wall = time.monotonic(), time.time()
        # oom_kills carries the raw wall clock for the test
        link.send(
            NodeReport(
                round=1, at=now, ranks=(), evidence_at=now, evidence_wall=wall, oom_kills=int(wall)
            )
        )
        time.sleep(0.1)
