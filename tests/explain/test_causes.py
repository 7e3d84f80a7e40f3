"""Causes, not messengers: whole logs through every reader and fault of the catalogue."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from holdfast import catalogue
from holdfast.explain.diagnose import Explanation, diagnose
from holdfast.explain.gather import gather_bytes
from holdfast.findings import Grade
from tests.analysis.logs.patterns.made import traceback
from tests.explain.made_tracebacks import (
    SITE,
    by_torchrun,
    store_call,
    store_lost_by_agent,
)

STEPS = tuple(f"step {n} loss 2.{99 - n}" for n in range(1, 30))
EXIT_KILLED = (
    "E0301 10:00:00.100000 211 torch/distributed/elastic/multiprocessing/api.py:869] failed "
    "(exitcode: -9) local_rank: 1 (pid: 333) of binary: /usr/bin/python"
)
CLOSED = (
    "[rank{rank}]: RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:534] "
    "Connection closed by peer [10.0.0.7]:23621"
)
EXIT_1 = EXIT_KILLED.replace("-9", "1")


def steps_of(rank: int) -> tuple[str, ...]:
    return tuple(f"[rank{rank}]: {line}" for line in STEPS)


class Case(NamedTuple):
    name: str
    log: tuple[str, ...] | dict[str, tuple[str, ...]]
    first: str
    """the fault that leads; several by '|'; '' for none"""
    rank: int | None = None
    never: str = ""
    """a fault that must not be among the answers"""
    saying: str = ""


def explain(log: tuple[str, ...] | dict[str, tuple[str, ...]]) -> Explanation:
    files = log if isinstance(log, dict) else {"job.log": log}
    read = gather_bytes({name: "\n".join(lines).encode() for name, lines in files.items()})
    return diagnose(read, (entry.fault for entry in catalogue.entries()))


def check(case: Case) -> None:
    found = explain(case.log)
    first = found.diagnoses[0] if found.diagnoses else None
    assert (first.slug if first else "") in case.first.split("|")
    assert found.failed == bool(first)
    assert case.never not in [one.slug for one in found.diagnoses]
    if first is not None:
        assert (first.culprit.rank if first.culprit else None) == case.rank
        said = " ".join((first.reason, *first.ruled_out, *first.unknown))
        assert case.saying in said


NO_ROUTE = (
    "torch.distributed.DistNetworkError: The client socket has failed to connect to any network "
    "address of (10.1.2.3, 29500). The client socket has failed to connect to 10.1.2.3:29500 "
    "(errno: 113 - No route to host)."
)
RESET = "torch.distributed.DistNetworkError: Connection reset by peer"
LAUNCHERS = (
    Case("no route", by_torchrun(NO_ROUTE), "peer-unreachable"),
    Case("refused, old torch", by_torchrun("RuntimeError: Connection refused"),
         "master-not-listening"),
    Case("silent, old torch", by_torchrun("RuntimeError: Connection timed out"),
         "peer-unreachable"),
    Case("timed out, torch 1.13",
         by_torchrun("TimeoutError: The client socket has timed out after 60s while trying to "
                     "connect to (node-a, 29500)."),
         "master-not-listening"),
    Case("clients",
         by_torchrun("torch.distributed.DistStoreError: Timed out after 61 seconds waiting for "
                     "clients. 1/2 clients joined."),
         "ranks-missing"),
    Case("join", by_torchrun("torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError"),
         "join-timeout"),
    Case("store reset", store_lost_by_agent(*store_call(RESET)), "store-host-lost", 0),
    Case("store closed, torch 2.4",
         store_lost_by_agent(*store_call("torch.distributed.DistNetworkError: failed to recv, got "
                                         "0 bytes")),
         "store-host-lost", 0),
    Case("store lost, outer exception only", store_lost_by_agent(), "store-host-lost", 0),
    Case("a rank's own exception, then the launcher's",
         (*traceback("KeyError: 'labels'", "/work/train.py:70 main", rank=5), EXIT_1,
          *store_lost_by_agent()),
         "python-exception", 5, never="store-host-lost"),
    Case("a launcher's file in the name of a rank's log",
         {"rank0.log": by_torchrun(NO_ROUTE)}, "peer-unreachable"),
)  # fmt: skip


@pytest.mark.parametrize("case", LAUNCHERS, ids=lambda case: case.name)
def test_an_exception_of_the_launcher_is_not_a_ranks(case: Case) -> None:
    never = case.never or ("" if case.first == "python-exception" else "python-exception")
    check(case._replace(never=never))


def test_what_the_launcher_cannot_do_by_itself_is_the_launchers() -> None:
    found = explain(by_torchrun("AttributeError: module 'os' has no attribute 'x'"))
    first = found.diagnoses[0]
    assert first.culprit is not None
    assert (first.culprit.rank, first.culprit.what) == (None, "the launcher")
    assert first.reason.startswith("the launcher, not a rank, raised AttributeError")


def warned(error: str, *, rank: int | None = None) -> tuple[str, ...]:
    return traceback(error, f"{SITE}/mylib/monitor.py:20 start", rank=rank)


NVML = warned("pynvml.NVMLError_LibraryNotFound: NVML Shared Library Not Found")
APEX = warned("ModuleNotFoundError: No module named 'apex'")
DISK = warned("OSError: [Errno 28] No space left on device")
DESTRUCTOR = ("Exception ignored in: <function Loader.__del__ at 0x7f1>", *NVML)
RAISED = traceback("ValueError: bad sample 17", "/work/train.py:10 f", rank=3)
SURVIVED = (
    Case("a healthy job", (*NVML, *STEPS), ""),
    Case("retried in the middle",
         (*STEPS, "wandb: Network error (ConnectionError), entering retry loop.",
          *warned("requests.exceptions.ConnectionError: Max retries exceeded"),
          *(f"step {n} loss 1" for n in range(40, 50))),
         ""),
    Case("a known fault's own words", (*DISK, *STEPS), "", never="disk-full"),
    Case("another rank was killed", (*APEX, *STEPS, EXIT_KILLED), "rank-killed", 1,
         never="python-exception", saying="No module named 'apex' at job.log:3: the program"),
    Case("another rank raised", (*(f"[rank0]: {line}" for line in NVML), *steps_of(0), *RAISED),
         "python-exception", 3),
    Case("a progress bar",
         (*NVML, *(f"{n}%|##| {n}/100 [00:{n}<01:00, 1.0it/s]" for n in range(10, 20))), ""),
    Case("a trainer's dictionaries",
         (*NVML, *(f"{{'loss': 1.5, 'epoch': 0.{n}}}" for n in range(1, 6))), ""),
    Case("steps long before the end of the log, which has another exception",
         (*NVML, *("x" * 50,) * 300, *STEPS, *RAISED, *("frame of native code " * 5,) * 1500),
         "python-exception", 3),
    Case("a destructor", DESTRUCTOR, ""),
    Case("an exit handler",
         ("Error in atexit._run_exitfuncs:", *warned("BrokenPipeError: [Errno 32] Broken pipe")),
         ""),
    Case("in JSON records",
         tuple(f'{{"log":"{line}\\n","stream":"stderr"}}'.replace('File "', r'File \"')
               .replace('.py",', r'.py\",') for line in (*NVML, *STEPS)),
         ""),
)  # fmt: skip


@pytest.mark.parametrize("case", SURVIVED, ids=lambda case: case.name)
def test_an_exception_that_the_program_survived_is_no_cause(case: Case) -> None:
    check(case)


NOT_SURVIVED = (
    Case("nothing after it", NVML, "python-exception"),
    Case("other ranks finish their step",
         (*RAISED, "[rank0]: step 11 loss 2", "[rank0]: step 12 loss 2",
          CLOSED.format(rank=0)),
         "python-exception", 3),
    # torch writes the rank before the traceback of an exception that nothing caught.
    Case("other ranks evaluate on", (*RAISED, *steps_of(0)), "python-exception", 3),
    Case("the same count again", (*NVML, *("step 7 loss 2",) * 9), "python-exception"),
    Case("counts that go down are retries", (*NVML, "step 3", "step 2", "step 1"),
         "python-exception"),
)  # fmt: skip


@pytest.mark.parametrize("case", NOT_SURVIVED, ids=lambda case: case.name)
def test_without_further_steps_of_its_writer_it_remains_one(case: Case) -> None:
    check(case)


def test_steps_that_may_have_been_buffered_leave_the_exception_possible() -> None:
    found = explain((*NVML, *STEPS, EXIT_1)).diagnoses[0]
    assert (found.slug, found.grade) == ("python-exception", Grade.POSSIBLE)
    assert "it was caught, or those lines were written late" in found.reason
