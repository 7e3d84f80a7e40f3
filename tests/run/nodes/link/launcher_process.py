"""A process that holds a link until it is killed: HOST PORT NAME, the token in the environment."""

from __future__ import annotations

import os
import sys
import time

from holdfast.nodes.token import token_from_environment
from holdfast.run.nodes.link.launcher_link import JoinedLink
from holdfast.run.nodes.messages import NodeCard

if __name__ == "__main__":
    host, port, name = sys.argv[1:]
    token = token_from_environment(os.environ)
    assert token
    card = NodeCard(name=name, identity=f"{name}-1", nproc=1)
    link = JoinedLink(host, int(port), token=token, card=card, seconds=60.0)
    print("joined", flush=True)
    while not link.lost():
        time.sleep(0.1)
