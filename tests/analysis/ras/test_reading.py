"""Answers of NCCL's RAS, as text and as JSON, those of real jobs among them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.analysis.ras import reading
from holdfast.analysis.ras.answer import RasAnswer, RasProcess
from tests.analysis.ras.answers import answer
from tests.system import ras_server
from tests.system.ras_server import RECORDED, FakeCommunicator, FakeJob, FakeRank, job

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
    0         1         2       1-2         4         4   RUNNING  INCOMPLETE

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
  Rank 0 reported Remote process error -- GPU 0 managed by process 11 on node n1

Warnings
========

TIMEOUT
  Encountered 2 communication timeouts while gathering communicator data

#0-0 (cf264af53edbe986) MISMATCH
  Communicator ranks have different AllReduce operation counts
  2 ranks have launched up to operation 6650
  Rank 0 -- GPU 0 managed by process 11 on node n1
  Rank 1 has launched up to operation 6649 -- GPU 1 managed by process 12 on node n1
  Rank 3 has not launched any operations -- [process information not found]
"""


def test_text() -> None:
    found = reading.read(TEXT.encode(), source="ras.txt")
    assert found is not None
    (group,) = found.communicators
    assert (found.nccl, found.processes, group.name, group.size) == (
        "2.28.9", 4, "cf264af53edbe986", 4,
    )  # fmt: skip
    assert found.silent == (
        RasProcess(host="172.16.64.213", pid=3487984, line=23),
        RasProcess(host="172.16.64.214", pid=3487985, dead=True, line=27),
    )
    assert [(m.rank, m.pid, m.state, m.error, m.counts) for m in group.members] == [
        (0, 11, "answers", "ncclRemoteError", {"AllReduce": 6650}),
        (1, 12, "answers", "", {"AllReduce": 6649}),
        (2, 3487984, "silent", "", {}),
        (3, None, "answers", "", {"AllReduce": 0}),
    ]
    assert group.launched == {"AllReduce": {6650: 2, 6649: 1, 0: 1}}
    assert TEXT.splitlines()[found.silent[0].line - 1].strip().startswith("Process 3487984")


@pytest.mark.parametrize("form", ["json", "txt"])
def test_a_real_job_that_lost_a_rank(form: str) -> None:
    """The JSON of NCCL 2.28.9 lacks a comma where a rank is missing."""
    found = reading.read((RECORDED / f"stuck.{form}").read_bytes())
    assert found is not None
    assert [(one.host, one.pid, one.dead) for one in found.silent] == [("192.0.2.2", 601, False)]
    states = {m.rank: (m.state, m.error) for m in found.communicators[0].members}
    assert states[1] == ("silent", "")
    assert states[2] == ("answers", "ncclRemoteError")
    assert (found.processes, found.communicators[0].size) == (3, 3)


@pytest.mark.parametrize("form", ["json", "txt"])
def test_a_real_job_that_is_well(form: str) -> None:
    found = reading.read((RECORDED / f"ok.{form}").read_bytes())
    assert found is not None
    assert (found.nccl, found.processes, found.silent) == ("2.28.9", 3, ())


def test_older_texts_name_missing_ranks_in_a_row_and_count_all_operations_together() -> None:
    text = (
        "Job summary\n===========\n\n#0-0 (ab) INCOMPLETE\n  Missing communicator data from 2 ranks"
        "\n  The missing ranks: 2,21\n\n#0-0 (ab) MISMATCH\n"
        "  Communicator ranks have different collective operation counts\n"
        "  30 ranks have launched up to operation 7\n"
        "  Rank 4 has launched up to operation 6 -- GPU 0 managed by process 9 on node n1\n"
        "  Communicator ranks have different status\n  26 ranks have status UNKNOWN\n"
        "  Rank 5 has status FINALIZE -- GPU 0 managed by process 8 on node n1\n"
    )
    found = reading.read(text.encode())
    assert found is not None
    (group,) = found.communicators
    assert {m.rank: m.state for m in group.members if m.state == "silent"} == {
        2: "silent", 21: "silent",
    }  # fmt: skip
    assert group.launched == {"collective": {7: 30, 6: 1}}
    assert group.changing


@pytest.mark.parametrize(
    "made",
    [
        (),
        (FakeRank(1057455228, 600, state="silent"), FakeRank(0, 601)),
        (FakeRank(0, 600, state="silent"), FakeRank(0, 601)),
        (FakeRank(-3, 600, state="silent"), FakeRank(0, 601)),
    ],
)
def test_a_communicator_that_is_not_ready_accuses_no_process(made: tuple[FakeRank, ...]) -> None:
    """As NCCL 2.27.3 to 2.32 send it while one is being made: zeros, or garbage."""
    whole = job(7, 7).communicators[0]
    found = answer(FakeJob(communicators=(FakeCommunicator(made, hash=0), whole)))
    assert found.silent == ()
    assert [one.name for one in found.communicators] == [f"{whole.hash:x}"]


def test_a_text_with_garbage_accuses_no_process() -> None:
    text = TEXT.replace(" 4         4   RUNNING", " 0         0    NOCOMM")
    found = reading.read(text.replace("Rank 2 --", "Rank 1057455228 --").encode())
    assert found is not None
    assert found.communicators == ()


def test_a_rank_that_answers_and_has_left_is_not_silent() -> None:
    gone = FakeRank(1, 601, state="left")
    found = answer(FakeJob(communicators=(FakeCommunicator((FakeRank(0, 600), gone)),)))
    assert found.silent == ()
    assert found.communicators[0].changing


def test_a_group_that_is_being_made_is_changing() -> None:
    new = FakeRank(1, 601, init=7)
    found = answer(FakeJob(communicators=(FakeCommunicator((FakeRank(0, 600), new)),)))
    assert found.communicators[0].changing
    assert not any(m.error for m in found.communicators[0].members)


def test_it_is_recognised_by_its_text() -> None:
    assert reading.looks_like(TEXT.encode())
    assert reading.looks_like(ras_server.as_json(job(1, 1)).encode())
    assert not reading.looks_like(b"step 1 loss 2.0\n[rank0]: Communicators\n")
    assert reading.read(b"Rank 3 -- GPU 1 managed by process 4 on node n1\n") is None


def test_an_answer_that_is_cut_short_is_none() -> None:
    whole = ras_server.as_json(job(1, 1, silent=[1])).encode()
    assert reading.read(whole) is not None
    assert reading.read(whole[:-20]) is None


def _harmless(found: RasAnswer | None) -> bool:
    members = [m for one in found.communicators for m in one.members] if found else []
    words = [w for m in members for w in (m.host, m.error, *m.counts)]
    words += [one.host for one in found.silent] if found else []
    return all(word.isascii() and word.isprintable() and " " not in word for word in words if word)


def test_what_a_terminal_would_obey_is_dropped() -> None:
    evil = FakeRank(0, 600, host="\\u001b[31mroot;rm -rf", counts={"AllReduce": 1})
    assert _harmless(answer(FakeJob(communicators=(FakeCommunicator((evil,)),))))


words = st.sampled_from(TEXT.splitlines()) | st.text(max_size=20)


@given(st.lists(words, max_size=30).map("\n".join))
def test_any_text_is_read(text: str) -> None:
    assert _harmless(
        reading.read(f"Job summary\n=====\n{text}".encode(errors="replace"), source="")
    )


@given(st.binary())
def test_any_bytes_are_read(data: bytes) -> None:
    for text in (data, b'{"communicators": ' + data, b"Job summary\n=====" + data):
        assert _harmless(reading.read(text))


@given(st.data())
def test_any_damage_to_a_real_answer_is_read(data: st.DataObject) -> None:
    whole = (RECORDED / data.draw(st.sampled_from(["stuck.json", "stuck.txt"]))).read_bytes()
    at = data.draw(st.integers(0, len(whole)))
    cut = data.draw(st.integers(0, 40))
    assert _harmless(
        reading.read(whole[:at] + data.draw(st.binary(max_size=8)) + whole[at + cut :])
    )
