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
KEEP_ALIVE = (
    "W0301 10:00:00.1 211 torch/distributed/elastic/rendezvous/dynamic_rendezvous.py:1345] The "
    "node 'n1' has failed to send a keep-alive heartbeat to the rendezvous 'x' due to an error of "
    "type RendezvousTimeoutError."
)
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
    Case("store reset", store_lost_by_agent(*store_call(RESET)), "store-host-lost",
         saying="or its machine or the path to it was lost"),
    Case("store closed, torch 2.4",
         store_lost_by_agent(*store_call("torch.distributed.DistNetworkError: failed to recv, got "
                                         "0 bytes")),
         "store-host-lost"),
    Case("store lost, outer exception only", store_lost_by_agent(), "store-host-lost"),
    Case("at the end",
         tuple(f"E0301 10:00:00.1 211 torch/distributed/elastic/agent/server/api.py:946] {line}"
               for line in ("Error waiting on exit barrier. Elapsed: 300.1 seconds",
                            *traceback("torch.distributed.DistStoreError: wait timeout after "
                                       "300000ms, keys: /none/torchelastic/agent/terminal_state/"
                                       "last_member", f"{SITE}/torch/distributed/elastic/agent/"
                                       "server/api.py:933 _exit_barrier"))),
         "node-lost", never="join-timeout"),
    Case("a rank's own exception, then the launcher's",
         (*traceback("KeyError: 'labels'", "/work/train.py:70 main", rank=5), EXIT_1,
          *store_lost_by_agent()),
         "python-exception", 5, never="store-host-lost"),
    Case("no route, as a rank says it",
         traceback(NO_ROUTE, "/work/train.py:10 main",
                   f"{SITE}/torch/distributed/rendezvous.py:189 _create_c10d_store"),
         "peer-unreachable"),
    Case("refused, as a rank says it",
         traceback(NO_ROUTE.replace("113 - No route to host", "111 - Connection refused"),
                   "/work/train.py:10 main"),
         "master-not-listening"),
    Case("a late keep-alive",
         (KEEP_ALIVE, *STEPS),
         ""),
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


SRUN = "srun: error: node7: task 3: Exited with exit code 1"
UNDECIDED = (
    (*NVML, *STEPS, EXIT_1),  # the rank that failed is another one, or its lines were buffered
    (*NVML, *STEPS[:6], CLOSED.format(rank=0)),  # other ranks finish a few steps more
)


@pytest.mark.parametrize("log", UNDECIDED, ids=["an exit code", "a lost peer"])
def test_steps_of_another_writer_leave_the_exception_possible(log: tuple[str, ...]) -> None:
    found = explain(log).diagnoses[0]
    assert (found.slug, found.grade) == ("python-exception", Grade.POSSIBLE)
    assert "it was caught, or those lines are another rank's or were written late" in found.reason


def test_lines_that_a_rank_had_buffered_do_not_hide_what_ended_it() -> None:
    """Without `python -u` its last lines come below the traceback."""
    labelled = tuple(f"3: {line}" for line in (*DISK, *STEPS))
    found = explain((*labelled, SRUN))
    assert [one.slug for one in found.diagnoses][:1] == ["disk-full"]
    later = (f"3: {line}" for line in traceback("ValueError: x", "/work/train.py:3 f"))
    found = explain((*labelled, *later, SRUN))
    assert "disk-full" not in [one.slug for one in found.diagnoses]
    assert found.diagnoses[0].slug == "python-exception"


def test_a_failure_that_led_to_a_restart_is_over() -> None:
    """The launcher reported the exit, and the rank counts again below the report."""
    first = traceback("OSError: [Errno 5] Input/output error", "/work/train.py:44 main", rank=1)
    last = traceback("ValueError: bad name", "/work/train.py:50 save", rank=0)
    found = explain((*first, EXIT_1, *steps_of(0), *steps_of(1), *last)).diagnoses[0]
    assert found.culprit is not None
    assert (found.slug, found.culprit.rank) == ("python-exception", 0)


def test_what_was_retried_may_end_the_program_at_last() -> None:
    once = traceback("OSError: S3 timeout", "/work/storage.py:20 get")
    found = explain((*once, *STEPS, *once)).diagnoses[0]
    assert (found.slug, found.evidence[0].line) == ("python-exception", 2 * len(once) + len(STEPS))


# --- collectives ---------------------------------------------------------------------------------


def watchdog(rank: int, *, at: int = 11, op: str = "ALLREDUCE", elements: int = 64) -> str:
    return (
        f"[rank{rank}]:[E301 10:30:15.143127245 ProcessGroupNCCL.cpp:689] [Rank {rank}] Watchdog "
        f"caught collective operation timeout: WorkNCCL(SeqNum={at}, OpType={op}, "
        f"NumelIn={elements}, NumelOut={elements}, Timeout(ms)=600000) ran for 600012 milliseconds "
        "before timing out."
    )


def nccl_error(words: str, *more: str) -> tuple[str, ...]:
    error = (
        "torch.distributed.DistBackendError: NCCL error in: /pytorch/torch/csrc/distributed/c10d/"
        f"ProcessGroupNCCL.cpp:2251, {words} (run with NCCL_DEBUG=INFO for details), NCCL version 2"
    )
    raised = traceback(error, "/work/train.py:30 main", rank=1)
    return (*raised, *(f"[rank1]: {line}" for line in more))


REFUSED = (
    "[rank1]:[E301 10:30:15.1 ProcessGroupNCCL.cpp:552] [Rank 1] Collective WorkNCCL(SeqNum=111, "
    "OpType=ALLREDUCE) raised the following async exception: NCCL error: invalid usage (run with "
    "NCCL_DEBUG=WARN for details), NCCL version 2.21.5"
)
WRAPPED = traceback("engine.TrainingError: step failed", "/work/engine.py:3 step", rank=0)
DTYPES = traceback(
    "ValueError: Invalid usage of tensors with different dtypesFound torch.float32 and  "
    "torch.float16",
    "/work/moe.py:30 forward",
    rank=1,
)
MESSENGERS = (
    Case("a timeout, wrapped by the trainer", (watchdog(0), watchdog(1), *WRAPPED), "rank-stuck",
         never="python-exception"),
    Case("refused while training", (*steps_of(1), REFUSED), "collective-mismatch",
         never="duplicate-gpu", saying="the one that reports it, or the one whose data it met"),
    Case("refused at the start, and NCCL shows no reason",
         nccl_error("invalid usage", "ncclInvalidUsage: invalid usage of NCCL.", "Last error:"),
         "duplicate-gpu", 1),
    Case("one rank's tensors differ in type", (*DTYPES, watchdog(0), watchdog(2)),
         "collective-mismatch", 1, saying="ranks 0,2, whose tensors passed that check, waited"),
    Case("the size differs on one rank",
         (watchdog(0), watchdog(1), watchdog(2, elements=7), watchdog(3)),
         "collective-mismatch", 2),
)  # fmt: skip


@pytest.mark.parametrize("case", MESSENGERS, ids=lambda case: case.name)
def test_a_traceback_below_a_collectives_error_is_its_messenger(case: Case) -> None:
    check(case)


def test_a_lost_peer_blames_nothing_without_a_sign_of_that_peer() -> None:
    words = "remote process exited or there was a network error"
    found = explain(nccl_error(words, "ncclRemoteError: A call failed"))
    assert (found.diagnoses, found.failed) == ((), True)


def test_an_error_of_nccl_without_its_reason_is_no_more_than_possible() -> None:
    error = nccl_error("unhandled system error", "ncclSystemError: System call", "Last error:")
    first = explain(error).diagnoses[0]
    assert (first.slug, first.grade) == ("python-exception", Grade.POSSIBLE)
    assert "NCCL's own reason: NCCL_DEBUG=WARN prints it" in first.unknown


# --- how a rank is gone --------------------------------------------------------------------------

OPEN_GROUP = (
    "[rank2]:[W301 10:20:15.1 ProcessGroupNCCL.cpp:1538] Warning: WARNING: destroy_process_group() "
    "was not called before program exit, which can leak resources."
)
GLOO_WAIT = (
    "[rank{rank}]: RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:"
    "81] Timed out waiting 1800000ms for recv operation to complete"
)
WAITED = (watchdog(0), watchdog(1), watchdog(3))
GONE = (
    Case("torch warned at its exit", (OPEN_GROUP, *WAITED), "rank-exits-early", 2),
    Case("its last line says so", (*steps_of(2), "[rank2]: Training finished", *WAITED),
         "rank-exits-early", 2),
    Case("its last line says so in other words",
         (*steps_of(2), "[rank2]: Finished training, exiting.", *WAITED), "rank-exits-early", 2),
    Case("an epoch that it finished is not the end",
         (*steps_of(2), "[rank2]: Finished training epoch 3", *WAITED), "rank-stuck", 2,
         never="rank-exits-early"),
    Case("each has a log",
         {"rank0.log": (watchdog(0),), "rank1.log": (watchdog(1),), "rank2.log": (OPEN_GROUP,)},
         "rank-exits-early", 2),
    Case("it raised, and warned at its exit",
         (*traceback("ValueError: x", "/work/train.py:3 f", rank=2), OPEN_GROUP,
          CLOSED.format(rank=0)),
         "python-exception", 2, never="rank-exits-early"),
    Case("a gap among those that speak", WAITED, "rank-stuck", 2,
         saying="rank 2 is inferred from lines of ranks 0-1,3"),
    Case("its connections closed", tuple(CLOSED.format(rank=r) for r in (0, 1, 3)), "rank-killed",
         2, never="rank-frozen"),
    Case("Gloo lost no connection", tuple(GLOO_WAIT.format(rank=r) for r in (0, 1, 3)),
         "rank-stuck", 2, never="rank-killed", saying="so it hung or its process was stopped;"),
    Case("Gloo's ranks gave up one after the other",
         (CLOSED.format(rank=0), *(GLOO_WAIT.format(rank=r) for r in (1, 3))), "rank-stuck", 2,
         never="rank-killed"),
    Case("its launcher ended it after the others",
         (*WAITED, CLOSED.format(rank=0), "Root Cause (first observed failure):",
          "  rank      : 0 (local_rank: 0)", "  exitcode  : 1 (pid: 1000)",
          "Other Failures:",
          "  rank      : 2 (local_rank: 2)", "  exitcode  : -15 (pid: 1002)"),
         "rank-stuck", 2, never="rank-frozen", saying="and took the launcher's SIGTERM"),
    Case("SIGTERM did not end it",
         (*WAITED, "Unable to shutdown process 1002 via 15, forcefully exiting via 9",
          "Root Cause (first observed failure):",
          "  rank      : 0 (local_rank: 0)", "  exitcode  : 1 (pid: 1000)",
          "Other Failures:",
          "  rank      : 2 (local_rank: 2)", "  exitcode  : -9 (pid: 1002)"),
         "rank-frozen", 2, never="rank-killed", saying="or hangs in the kernel or a driver"),
    Case("every other rank speaks", tuple(watchdog(r) for r in (0, 2, 4, 6)), "rank-stuck", None,
         never="rank-killed"),
    Case("half of the ranks speak", tuple(watchdog(r) for r in (4, 5, 6, 7)), "rank-stuck", None,
         never="rank-killed"),
)  # fmt: skip


@pytest.mark.parametrize("case", GONE, ids=lambda case: case.name)
def test_what_is_said_of_a_rank_that_is_gone(case: Case) -> None:
    check(case)


@pytest.mark.parametrize(
    ("lines", "rank"),
    [
        ((), 1),
        (tuple(f"[rank{r}]: step 3" for r in range(4)), 1),
        (tuple(f"[rank{r}]: step 3" for r in range(8, 16)), 9),  # the second machine's log
        (tuple(f"[rank{r}]: step 3" for r in range(7, 10)), None),
        (("+ torchrun --nnodes 2 --nproc-per-node 4 train.py",), None),
        (("+ torchrun --nnodes=1 --nproc-per-node 4 train.py",), 1),
        (("node-a:77:77 [0] NCCL INFO Bootstrap", "node-b:78:78 [0] NCCL INFO cudaDriver"), None),
    ],
)  # fmt: skip
def test_a_local_rank_is_a_rank_on_one_machine_only(
    lines: tuple[str, ...], rank: int | None
) -> None:
    first = explain((*lines, EXIT_KILLED)).diagnoses[0]
    assert first.culprit is not None
    assert (first.slug, first.culprit.rank) == ("rank-killed", rank)
    assert rank is not None or first.culprit.what == "local rank 1"


def test_an_interrupted_job_shows_where_its_ranks_were() -> None:
    inside = f"{SITE}/torch/distributed/distributed_c10d.py:3252 all_reduce"
    closed = CLOSED.format(rank=0).partition("]: ")[2]
    waited = [traceback(closed, "/work/train.py:15 step", inside, rank=r) for r in (0, 1, 3)]
    slept = traceback("KeyboardInterrupt", "/work/train.py:12 load", rank=2)
    found = explain((*slept, *(line for lines in waited for line in lines)))
    assert [one.slug for one in found.diagnoses] == ["external-sigterm", "rank-stuck"]
    stuck = found.diagnoses[1]
    assert stuck.culprit is not None
    assert (stuck.culprit.rank, stuck.victims, stuck.grade) == (2, (0, 1, 3), Grade.POSSIBLE)
    assert "rank 2 was in load() at train.py:12, and ranks 0-1,3 in all_reduce()" in stuck.reason
