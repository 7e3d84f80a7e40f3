from __future__ import annotations

from holdfast.analysis.logs.wreckage import LogLine, LostRun
from holdfast.faults.processes import launcher_killed
from tests.analysis.logs.patterns.made import wreckage
from tests.faults.table import explain_table, passes_over, recognises

LINE = LogLine(text="progress", source="runs/a/journal.jsonl", number=9, host="node7")

test_explain = explain_table(
    "launcher-killed",
    recognises(
        wreckage("step 1", lost_runs=(LostRun(line=LINE, gone=True),)),
        sure=0.75,
        what="launcher",
        saying=["the launcher is gone", "OOM killer", "its ranks ended with it"],
    ),
    recognises(
        wreckage("step 1", lost_runs=(LostRun(line=LINE, gone=False),)),
        sure=0.4,
        what="launcher",
        saying=["or the run was still going"],
    ),
    passes_over(wreckage("step 1")),
)


def test_the_next_run_says_why_the_one_before_has_no_end() -> None:
    killed = launcher_killed.run_before_was_lost("runs/a b", rebooted=False)
    assert "its launcher was killed" in killed.reason
    assert "`holdfast explain 'runs/a b'`" in killed.fix
    assert not killed.certain
    restarted = launcher_killed.run_before_was_lost("runs/a", rebooted=True)
    assert "the machine was restarted" in restarted.reason
