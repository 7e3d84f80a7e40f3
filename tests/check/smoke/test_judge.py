from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.analysis.machine import Reach, Smoke, Unread
from holdfast.check.smoke.judge import judge
from holdfast.check.smoke.rank_progress import culprits, standing
from holdfast.check.smoke.stages import STAGES, Record
from tests.check.smoke.smokes import (
    LOOPBACK,
    WORLD,
    a_smoke,
    done,
    error,
    exit_of,
    failure,
    late,
    no_nccl,
    rungs,
    started,
    up_to,
    verdict,
)

RESET = "RuntimeError: [pair.cc:547] Connection closed by peer [127.0.0.1]:41234"
VAIN = "DistStoreError: wait timeout after 15000ms, keys: /holdfast-smoke/2"
TAKEN = "DistNetworkError: The server socket has failed to listen … name: EADDRINUSE"


def statuses(smoke: Smoke) -> dict[str, str]:
    return {stage.name: stage.status for stage in smoke.stages}


def test_all_well() -> None:
    smoke = a_smoke()
    assert statuses(smoke) == {
        "loopback": "ok",
        "start": "ok",
        "store": "ok",
        "gloo": "ok",
        "nccl": "skipped",
    }
    assert smoke.stages[-1].reason == "this build of torch has no NCCL"
    assert [rank.reached for rank in smoke.ranks] == ["gloo"] * WORLD
    top = smoke.ladder[-1]
    assert (top.size, top.seconds) == (64 << 20, 0.5)
    assert top.bandwidth == 2 * 3 / 4 * (64 << 20) / 0.5


def test_the_ladder_is_as_slow_as_its_slowest_rank() -> None:
    slow = [r._replace(seconds=2.0) for r in rungs(3)]
    assert {rung.seconds for rung in verdict(up_to("gloo", range(3)) + slow).ladder} == {2.0}


def test_a_wrong_sum_is_a_failure_even_though_every_rank_finished() -> None:
    doctored = [
        record._replace(correct=False, text="element 7: got 72, expected 80")
        if (record.rank, record.kind, record.size) == (1, "rung", 64 << 20)
        else record
        for record in up_to("gloo")
    ]
    smoke = verdict(doctored)
    failed = failure(smoke)
    assert failed.name == "gloo"
    assert "64 MiB gave a wrong sum on rank 1: element 7: got 72, expected 80" in failed.reason
    assert [rung.correct for rung in smoke.ladder] == [True] * 4 + [False]


def test_the_port_taken_is_the_fault_of_rank_0_only() -> None:
    failed = failure(verdict([*up_to("start"), error(0, "store", TAKEN)]))
    assert (failed.name, failed.cause) == ("store", "port-in-use")
    assert failed.reason.startswith("rank 0 (pid 100): another program holds the port")
    assert "ranks" not in failed.reason


def test_a_dead_rank_is_named_not_those_whose_connection_it_reset() -> None:
    records = [
        *up_to("store"),
        *(error(rank, "gloo", RESET) for rank in (0, 1, 3)),
        *(exit_of(rank, "gloo", 1) for rank in (0, 1, 3)),
        exit_of(2, "gloo", -9),
    ]
    failed = failure(verdict(records))
    assert (failed.name, failed.cause) == ("gloo", "ranks-missing")
    assert failed.reason == "rank 2 (pid 102) was killed by SIGKILL; ranks 0-1,3 are not to blame"


def test_a_silent_rank_is_named_not_those_whose_clock_ran_out() -> None:
    victims = [error(rank, "store", VAIN) for rank in (0, 1, 3)]
    failed = failure(verdict([*up_to("start"), *victims, late(2, "store")]))
    assert failed.cause == "ranks-missing"
    assert failed.reason.startswith("rank 2 (pid 102) got no further in 'store' for 30 s")


def test_ranks_that_were_never_told_to_begin_are_not_late() -> None:
    failed = failure(verdict([*up_to("start"), late(0, "store")]))
    assert failed.reason.startswith("rank 0 (pid 100)")


def test_a_stopped_rank_is_named_while_the_others_still_import() -> None:
    records = [started(r) for r in range(WORLD)] + [late(r, "start", "R") for r in (0, 1, 3)]
    failed = failure(verdict([*records, late(2, "start", "T")]))
    assert (failed.name, failed.cause) == ("start", "ranks-missing")
    assert "rank 2 (pid 102) does not run" in failed.reason
    assert "state T" in failed.reason


def test_an_early_exit_is_named_with_its_last_words() -> None:
    gone = exit_of(2, "start", 0, "first line\nthe licence has run out")
    failed = failure(verdict([*up_to("start", (0, 1, 3)), started(2), gone]))
    assert "rank 2 (pid 102) ended with exit code 0" in failed.reason
    assert "its last line: the licence has run out" in failed.reason


def test_a_crash_is_not_called_a_missing_rank() -> None:
    failed = failure(verdict([*up_to("store"), exit_of(1, "gloo", -11)]))
    assert failed.cause == "native-crash"
    assert "SIGSEGV" in failed.reason


def test_an_abort_by_the_watchdog_is_a_victims_end() -> None:
    text = "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1)"
    records = [*up_to("gloo"), *(exit_of(r, "nccl", -6, text) for r in (0, 1, 2)), late(3, "nccl")]
    assert failure(verdict(records)).reason.startswith("rank 3 (pid 103)")


def test_when_no_rank_gets_through_none_is_called_missing() -> None:
    failed = failure(verdict([*up_to("store"), *(late(rank, "gloo") for rank in range(WORLD))]))
    assert failed.cause == ""
    assert "ranks 0-3 got no further" in failed.reason
    assert "firewall" in failed.reason


def test_a_rank_that_could_not_be_started_says_why() -> None:
    refused = error(3, "start", "[Errno 11] Resource temporarily unavailable")
    failed = failure(verdict([*up_to("start", range(3)), refused]))
    assert (failed.name, failed.cause) == ("start", "process-limit")
    assert failed.reason.startswith("rank 3:")


def test_ranks_must_agree_on_the_master_and_not_share_a_gpu() -> None:
    odd = [*up_to("start", range(3)), started(3), done(3, "start", master="10.0.0.9:29500")]
    assert failure(verdict(odd)).cause == "rank-assignment"
    assert "10.0.0.9:29500, 127.0.0.1:29500" in failure(verdict(odd)).reason
    shared = [done(rank, "start", device=f"cuda:{min(rank, 2)}") for rank in range(WORLD)]
    assert "ranks 2-3 share cuda:2" in failure(verdict(shared)).reason
    wanted = [done(rank, "start", device="cuda:0 (shared)") for rank in range(WORLD)]
    assert statuses(verdict(wanted))["start"] == "ok"


def test_nccl_left_out_by_some_ranks_only_is_no_success() -> None:
    failed = failure(verdict(up_to("gloo") + no_nccl()[2:3] + [late(0, "nccl")]))
    assert (failed.name, failed.cause) == ("nccl", "rank-assignment")
    assert "rank 2 could not take part" in failed.reason


def test_a_rank_that_dies_between_stages_is_named() -> None:
    skipped = [record for record in no_nccl() if record.rank != 2]
    failed = failure(verdict([*up_to("gloo"), *skipped, exit_of(2, "gloo", -9)]))
    assert "rank 2 (pid 102) was killed by SIGKILL" in failed.reason


def test_loopback_dropped_stops_everything() -> None:
    dropped = (Reach(address="127.0.0.1", port=1, error="ETIMEDOUT", seconds=0.5),)
    smoke = verdict([], loopback=dropped)
    assert failure(smoke).cause == "loopback-blocked"
    assert "dropped" in failure(smoke).reason
    assert statuses(smoke)["start"] == "skipped"
    assert smoke.stages[1].reason == "not reached: stage 'loopback' failed"


def test_loopback_not_looked_at_or_without_ipv6_stops_nothing() -> None:
    unread = verdict(up_to("gloo"), loopback=Unread(why="no answer within 0.8 s"))
    assert unread.stages[0].status == "skipped"
    assert "no answer within 0.8 s" in unread.stages[0].reason
    no_ipv6 = (*LOOPBACK, Reach(address="::1", port=0, error="EADDRNOTAVAIL", seconds=0.0))
    assert verdict(up_to("gloo"), loopback=no_ipv6).stages[0].status == "ok"


any_record = st.builds(
    Record,
    rank=st.integers(-1, WORLD),
    kind=st.sampled_from(["started", "done", "rung", "skipped", "error", "exit", "late", "closed"]),
    stage=st.sampled_from([*STAGES, "end"]),
    pid=st.integers(0, 5),
    device=st.sampled_from(["", "cpu", "cuda:0"]),
    master=st.sampled_from(["", "a:1", "b:2"]),
    nccl=st.sampled_from(["", "2.18.3"]),
    size=st.integers(0, 1 << 30),
    seconds=st.floats(0, 100),
    correct=st.booleans(),
    text=st.sampled_from(["", "\n", "T", "D", RESET, VAIN, TAKEN]),
    code=st.integers(-70, 255),
)


@given(st.integers(1, WORLD), st.lists(any_record, max_size=30))
def test_any_records_give_a_verdict_that_fits(world: int, records: list[Record]) -> None:
    smoke = judge(world, records, loopback=LOOPBACK, seconds=60.0)
    assert [stage.name for stage in smoke.stages] == ["loopback", *STAGES]
    assert [rank.rank for rank in smoke.ranks] == list(range(world))
    failed = [stage for stage in smoke.stages if stage.status == "failed"]
    assert len(failed) <= 1
    assert all(stage.reason for stage in smoke.stages if stage.status != "ok") or any(
        record.kind == "skipped" and not record.text for record in records
    )
    for stage in smoke.stages:
        if stage.status == "ok" and stage.name != "loopback":
            finished = {r.rank for r in records if (r.kind, r.stage) == ("done", stage.name)}
            assert finished >= set(range(world)), "ok means: every rank said so"


@given(st.lists(any_record, max_size=30), st.sampled_from(STAGES))
def test_never_blames_a_rank_that_came_further_than_one_that_failed(
    records: list[Record], stage: str
) -> None:
    roll = [standing(rank, records) for rank in range(WORLD)]
    behind = [who for who in roll if who.reached <= STAGES.index(stage)]
    blamed = culprits(stage, roll)
    assert bool(blamed) == bool(behind)
    for who in blamed:
        assert who in behind
        assert all(who.reached <= other.reached for other in behind)


@given(st.integers(0, WORLD - 1), st.sampled_from(STAGES), st.data())
def test_a_rank_that_never_came_is_the_only_one_blamed(
    absent: int, stage: str, data: st.DataObject
) -> None:
    """Whatever the others say when their wait ends in a timeout, and whichever of them says it."""
    came = STAGES[: STAGES.index(stage)]
    records = [started(rank) for rank in range(WORLD)]
    records += [done(rank, name) for rank in range(WORLD) for name in came]
    records.append(late(absent, stage))
    for rank in set(range(WORLD)) - {absent}:
        record = data.draw(
            st.sampled_from(
                [done(rank, stage), error(rank, stage, RESET), error(rank, stage, VAIN)]
            )
        )
        records.append(record)
    failed = failure(verdict(records))
    assert failed.name == stage
    assert f"rank {absent} (pid {100 + absent})" in failed.reason
    assert failed.cause == "ranks-missing"
