"""Run the launcher with a watcher that does what the test says.

    launch_with.py FOLDER PLAN ARGUMENTS-OF-RUN…

PLAN is a comma-separated list of steps, one for each time a rank fails: 'restart', 'stop',
or 'break' (the watcher itself raises). 'fenced' at its end: nothing may outlive the end of an
attempt. 'slow' alone: a look lasts until all ranks have exited, and notes what it saw first.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence

from holdfast.analysis.job.run_paths import RunPaths
from holdfast.analysis.scene.scene import SurvivingProcess
from holdfast.errors import Error
from holdfast.run.launch.flags import parse
from holdfast.run.launch.launch import describe, start
from holdfast.run.launch.terminate import exit_code
from holdfast.run.watch.interface import JobAction


class Obedient:
    """Notes every call in FOLDER/calls.jsonl, and follows the plan."""

    def __init__(self, folder: str, plan: list[str]) -> None:
        self.notes = os.path.join(folder, "calls.jsonl")
        self.plan = plan
        self.pids: dict[int, int] = {}
        self.failed: dict[int, int] = {}

    def note(self, what: str, **details: object) -> None:
        with open(self.notes, "a", encoding="utf-8") as file:
            file.write(json.dumps({"what": what, **details}) + "\n")

    def ranks_started(self, attempt: int, pids: Mapping[int, int]) -> None:
        self.pids, self.failed = dict(pids), {}
        self.note("started", attempt=attempt, pids=list(pids.values()))

    def look(self) -> JobAction:
        codes = {rank: exit_code(pid) for rank, pid in self.pids.items()}
        failed = {rank: code for rank, code in codes.items() if code}
        if "slow" in self.plan:
            self.note("looked", codes=list(codes.values()))
            while any(exit_code(pid) is None for pid in self.pids.values()):
                time.sleep(0.01)
        if not failed:
            return JobAction.KEEP_RUNNING
        if not self.failed:  # 'taking evidence': the living must still live at the next look
            self.failed = failed
            return JobAction.HOLD
        living = [rank for rank, code in codes.items() if code is None]
        step = self.plan.pop(0) if self.plan else "stop"
        self.note(step, failed=self.failed, living=living)
        if step == "break":
            raise ValueError("no plan for this")
        return JobAction(step)

    def culprits(self) -> frozenset[int]:
        return frozenset(self.failed)

    def exiting(self) -> frozenset[int]:
        return frozenset()

    def fenced(self) -> bool:
        return "fenced" in self.plan

    def waiting_for_exit(self, ranks: Sequence[int], seconds_left: float) -> None:
        self.note("waiting", ranks=list(ranks))

    def signal_forwarded(self, sign: signal.Signals, ranks: Sequence[int]) -> None:
        self.note("forwarded", signal=sign.name, ranks=list(ranks))

    def waits_for_others(self, sign: signal.Signals) -> bool:
        del sign
        return False

    def told_to_stop(self, sign: signal.Signals) -> None:
        self.note("told", signal=sign.name)

    def outlived(self, processes: Sequence[SurvivingProcess], *, ended: bool) -> None:
        self.note("outlived", names=[(p.rank, p.name) for p in processes], ended=ended)

    def ranks_stopped(self, _: Sequence[int]) -> None:
        self.note("stopped")

    def exit_code(self) -> int:
        code = next(iter(self.failed.values()), 0)
        return 128 - code if code < 0 else code


def rank_environment(local_rank: int, env: dict[str, str]) -> dict[str, str]:
    return {**env, "DRESSED": f"rank {local_rank}"}


def main() -> int:
    folder, plan, *arguments = sys.argv[1:]
    try:
        flags = parse(arguments)
        paths = RunPaths(folder, "run")
        if flags.dry_run:
            print(describe(flags, paths=paths, rank_environment=rank_environment))
            return 0
        watcher = Obedient(folder, plan.split(",") if plan else [])
        return start(flags, watcher=watcher, paths=paths, rank_environment=rank_environment)
    except Error as problem:
        print(f"error: {problem.sentence}\nhint: {problem.hint}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
