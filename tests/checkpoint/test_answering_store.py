"""A store that fails or freezes blocks no rank, and answers again when it does."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from datetime import timedelta

import pytest
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from holdfast.checkpoint.answering_store import AnsweringStore, StoreTroubleError
from holdfast.checkpoint.message_board import MemoryStore

SERVER = """
import sys, torch.distributed as dist
store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
print(store.port, flush=True)
sys.stdin.read()
"""


def test_a_frozen_server_is_trouble_until_it_runs_again() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        try:
            assert server.stdout
            port = int(server.stdout.readline())
            client = TCPStore("127.0.0.1", port, timeout=timedelta(seconds=60))
            store = AnsweringStore(client, seconds=0.3)
            store.set("a", "1")
            server.send_signal(signal.SIGSTOP)
            with pytest.raises(StoreTroubleError, match=r"has not answered for 0\.3 s"):
                store.check(["a"])
            with pytest.raises(StoreTroubleError, match="still does not answer"):
                store.check(["a"])
            store.set_later("b", "2")
            server.send_signal(signal.SIGCONT)
            assert store._last is not None
            assert store._last.done.wait(30)
            assert (store.get("a"), store.get("b")) == (b"1", b"2")
        finally:
            server.kill()
    with pytest.raises(StoreTroubleError, match="the job's store failed"):
        store.check(["a"])


def test_it_is_the_store_itself_otherwise() -> None:
    inner = MemoryStore()
    store = AnsweringStore(inner)
    store.set("a", "x")
    store.add_later("n", 2)
    assert (store.get("a"), store.add("n", 3)) == (b"x", 5)
    assert store.check(["a", "n"])
    store.delete_later(["a", "n"])
    assert not store.check(["a"])
    with pytest.raises(KeyError):  # a mistake of ours is no trouble of the store
        store.get("a")


def test_two_threads_ask_one_after_the_other() -> None:
    store = AnsweringStore(MemoryStore())
    threads = [
        threading.Thread(target=lambda: [store.add("n", 1) for _ in range(200)]) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.add("n", 0) == 800
