from __future__ import annotations

from tests.analysis.logs.patterns.jobs import HEALTHY, STUCK, a_job, a_raise, timed_out
from tests.analysis.logs.patterns.made import wreckage
from tests.faults.table import (
    explain_table,
    notices,
    overlooks,
    passes_over,
    recognises,
    run_table,
)
from tests.run.scenes import IN_SAVE, NOW, changed, held_up

AT_WORK = {0: {"stack": IN_SAVE, "alive_at": NOW}}
LONG = held_up(AT_WORK, seconds=1000.0, started_at=NOW - 9000)

test_run = run_table(
    "slow-rank-timeout",
    notices(
        LONG,
        ranks=[0],
        victims=[1, 2, 3],
        certain=False,
        saying=[
            "in save() at ckpt.py:40 for 16 minutes, active",
            "their timeout is 30 minutes: holdfast will end the wait after 29 minutes",
            "init_process_group(timeout=",
        ],
    ),
    overlooks(held_up({})),
    overlooks(held_up(AT_WORK, seconds=600.0, started_at=NOW - 9000)),
    overlooks(changed(LONG, 0, alive_at=NOW - 900)),  # not at work: rank-stuck has the words
    # no step for long, but the wait itself has just begun
    overlooks(
        held_up(AT_WORK, seconds=1000.0, victim={"alive_at": NOW - 3}, started_at=NOW - 9000)
    ),
)


BAR = "Running tokenizer on dataset (num_proc=16):  38%|███▊      | 38/100 [28:51<47:05, 1.2s/it]"
DONE = BAR.replace(" 38%|", "100%|")
CUT = "Map:  47%|████▋     | 47/100 [30:09<33:25, 967 examples/s]"

UNIQUE_ID = (
    "[3] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d key-value "
    "store by key '0', but store->get('0') got error: "
)

test_explain = explain_table(
    "slow-rank-timeout",
    recognises(
        wreckage(f"[rank3]: RuntimeError: {UNIQUE_ID}Socket Timeout"),
        sure=0.4,
        rank=0,
        victims=[3],
        saying=["to reach its first collective"],
    ),
    passes_over(wreckage(f"[rank3]: RuntimeError: {UNIQUE_ID}Connection reset by peer")),
    recognises(
        wreckage(
            '    with training_args.main_process_first(desc="dataset map tokenization"):',
            "RuntimeError: Socket Timeout",
        ),
        sure=0.65,
        rank=0,
        saying=["main_process_first"],
    ),
    passes_over(
        wreckage('    with training_args.main_process_first(desc="dataset map tokenization"):')
    ),
    recognises(
        a_job("[rank0]: Saving model checkpoint to out/checkpoint-500", *map(timed_out, (1, 2, 3))),
        sure=0.75,
        rank=0,
        victims=[1, 2, 3],
        saying=["rank 0 was still working (saving model checkpoint", "timeout of 10 minutes"],
    ),
    recognises(
        a_job(BAR, *map(timed_out, (1, 2, 3))),
        sure=0.75,
        rank=0,
        saying=["running tokenizer, 38 %"],
    ),
    recognises(
        a_job(BAR, timed_out(1), world=None),
        sure=0.6,
        what="running tokenizer",
        saying=["one rank"],
    ),
    recognises(a_job(DONE, timed_out(1), world=None), sure=0.4, saying=["100 %"]),
    recognises(
        a_job(CUT, "Traceback (most recent call last):", world=None),
        sure=0.55,
        what="map",
        saying=["30:09", "30 minutes"],
    ),
    recognises(
        a_job(*(timed_out(r, seq=2, numel=1) for r in (1, 2, 3))),
        sure=0.5,
        rank=0,
        saying=["rank 0 logged no error"],
    ),
    recognises(
        a_job(timed_out(3, seq=900, op="BARRIER"), world=None), sure=0.3, saying=["barrier"]
    ),
    passes_over(HEALTHY),
    passes_over(STUCK),
    # It was the one that waited.
    passes_over(a_job("[rank1]: Saving model checkpoint to out", timed_out(1), world=None)),
    passes_over(a_job("[rank0]: Saving model checkpoint to out", "[rank0]: step 5")),
    passes_over(a_job(timed_out(0, numel=1), timed_out(1, numel=1))),
    passes_over(a_job(BAR, timed_out(1), raised=[a_raise(0, "ValueError", "bad row")])),
    passes_over(a_job(CUT.replace("30:09", "12:09"), "Traceback (most recent call last):")),
)
