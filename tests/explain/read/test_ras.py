"""What ncclras says, as text and as JSON."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from holdfast.explain.read import ras
from holdfast.explain.read.ras import RasRank

TEXT = """\
NCCL version 2.28.9 compiled with CUDA 13.0
CUDA runtime version 13000, driver version 13000

Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      2          2            1          4        4

Communicators... (0.00s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         2         2         4         4   RUNNING  INCOMPLETE

Errors
======

INCOMPLETE
  Missing communicator data from 1 job process
  Process 3487984 on node 172.16.64.213 managing GPU 5

DEAD
  1 job process is considered dead (unreachable via the RAS network)
  Process 3487985 on node 172.16.64.214 managing GPU 6

#0-0 (cf264af53edbe986) INCOMPLETE
  Missing communicator data from 1 rank
  Rank 2 -- GPU 5 (NVML 1) managed by process 3487984 on node 172.16.64.213

#0-0 (cf264af53edbe986) ERROR
  Asynchronous error on 1 rank
  Rank 0 reported Remote process exited or there was a network error -- GPU 0 managed by process 11 on node n1

Warnings
========

#0-0 (cf264af53edbe986) MISMATCH
  Communicator ranks have different AllReduce operation counts
  2 ranks have launched up to operation 6650
  Rank 0 -- GPU 0 managed by process 11 on node n1
  Rank 1 has launched up to operation 6649 -- GPU 1 managed by process 12 on node n1
  Rank 3 has not launched any operations -- [process information not found]
"""  # noqa: E501 - as it is written


def test_text() -> None:
    comm = "#0-0 (cf264af53edbe986)"
    found = ras.read(TEXT.encode())
    assert [
        (r.communicator, r.rank, r.host, r.pid, r.missing, r.dead, bool(r.error), r.counts)
        for r in found
    ] == [
        ("", None, "172.16.64.213", 3487984, True, False, False, {}),
        ("", None, "172.16.64.214", 3487985, True, True, False, {}),
        (comm, 2, "172.16.64.213", 3487984, True, False, False, {}),
        (comm, 0, "n1", 11, False, False, True, {}),
        (comm, 0, "n1", 11, False, False, False, {"AllReduce": 6650}),
        (comm, 1, "n1", 12, False, False, False, {"AllReduce": 6649}),
        (comm, 3, "", None, False, False, False, {"AllReduce": 0}),
    ]
    assert TEXT.splitlines()[found[0].line - 1].strip().startswith("Process 3487984")


def test_json() -> None:
    lives = {"rank": 0, "host": "n1", "pid": 11, "cuda_dev": 0, "nvml_dev": 0,
             "status": {"init_state": 0, "async_error": 6, "finalize_called": False},
             "collective_counts": {"AllReduce": 7}}  # fmt: skip
    gone = {"rank": 1, "host": "unknown", "pid": -1,
            "status": {"unresponsive": True, "considered_dead": True}}  # fmt: skip
    whole = {"communicators_count": 1, "communicators": [
        {"hash": "0xab", "size": 2, "missing_ranks_count": 1, "ranks": [lives],
         "missing_ranks": [gone]}]}  # fmt: skip
    data = json.dumps(whole).encode()
    assert ras.looks_like(data)
    assert ras.read(data) == (
        RasRank(communicator="0xab", size=2, rank=0, host="n1", pid=11,
                error="ncclRemoteError", counts={"AllReduce": 7}),
        RasRank(communicator="0xab", size=2, rank=1, missing=True, dead=True),
    )  # fmt: skip


def test_it_is_recognised_by_its_text() -> None:
    assert ras.looks_like(TEXT.encode())
    assert not ras.looks_like(b"step 1 loss 2.0\n[rank0]: Communicators\n")
    assert ras.read(b"Rank 3 -- GPU 1 managed by process 4 on node n1\n") == ()


words = st.sampled_from(TEXT.splitlines()) | st.text(max_size=20)


@given(st.lists(words, max_size=30).map("\n".join))
def test_any_text_is_read(text: str) -> None:
    for found in ras.read(text.encode()):
        assert found.host.isprintable()


@given(st.binary())
def test_any_bytes_are_read(data: bytes) -> None:
    for text in (data, b'{"communicators": ' + data):
        assert ras.looks_like(text) in (True, False)
        assert all(found.host.isprintable() for found in ras.read(text))
