"""A rank knows which of those that were started beside it are gone."""

from __future__ import annotations

import subprocess
import sys

import pytest

from holdfast.checkpoint.message_board import MemoryStore, MessageBoard
from holdfast.checkpoint.peers import Peers

RANK = """
from holdfast.checkpoint.message_board import MemoryStore, MessageBoard
from holdfast.checkpoint.peers import Peers
store = MemoryStore()
peers = Peers(MessageBoard(store, rank=0, world_size=3))
print(repr(peers.missing()), flush=True)
input()
print(repr(peers.missing()), store.check(["gone"]), flush=True)
"""
LAUNCHER = """
import os, subprocess, sys
def start(rank, code, **pipes):
    env = os.environ | ({"RANK": rank, "LOCAL_RANK": rank} if rank else {})
    return subprocess.Popen([sys.executable, "-c", code], env=env, text=True, **pipes)
helper = start("", "input()", stdin=subprocess.PIPE)
peer = start("1", "input()", stdin=subprocess.PIPE)
rank = start("0", sys.argv[1], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
print(rank.stdout.readline(), end="")
helper.stdin.close(); helper.wait()
peer.kill()
if sys.argv[2] == "reaped":
    peer.wait()
else:
    os.waitid(os.P_PID, peer.pid, os.WEXITED | os.WNOWAIT)
print(rank.communicate("\\n")[0], end="")
"""


@pytest.mark.parametrize("how", ["reaped", "zombie"])
def test_a_rank_that_its_launcher_has_lost(how: str) -> None:
    """Other children of the launcher may come and go."""
    done = subprocess.run(
        [sys.executable, "-c", LAUNCHER, RANK, how],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.stdout == "''\n'rank 1 has exited' True\n", done.stderr


def test_what_one_rank_has_seen_the_others_know(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    store = MemoryStore()
    elsewhere = Peers(MessageBoard(store, rank=5, world_size=8))
    assert elsewhere.missing() == ""
    store.set("gone", '{"rank":"1"}')
    assert elsewhere.missing() == "rank 1 has exited"
