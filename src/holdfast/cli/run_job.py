"""A job from its first rank to its report, on one machine or as one node of several."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from holdfast.analysis.job.journal_records import EndRecord
    from holdfast.analysis.scene.scene import Policy, Scene
    from holdfast.cli.run_files import RunFiles
    from holdfast.findings import Verdict
    from holdfast.run.launch.flags import RunFlags
    from holdfast.run.launch.places import RunPlaces
    from holdfast.run.launch.rank_fence import RankFence
    from holdfast.run.nodes.round_source import RoundSource
    from holdfast.run.runs.report import RunReport
    from holdfast.run.watch.interface import Watcher

OWN_FAILURE = 125


if TYPE_CHECKING:

    class JobWatch(Watcher, Protocol):
        """The watch of one machine or of a coordinator, or that of a member."""

        @property
        def stop_signal(self) -> str: ...

        @property
        def acted_on(self) -> tuple[Verdict | None, Scene] | None: ...

        def rank_environment(
            self, local_rank: int, environment: dict[str, str]
        ) -> dict[str, str]: ...

        def close(self) -> None: ...

        def end_record(self, exit_code: int) -> EndRecord: ...


def policy_of(flags: RunFlags) -> Policy:
    from holdfast.analysis.scene.scene import Policy
    from holdfast.rank import nccl_settings

    return Policy(
        patience=flags.patience,
        max_restarts=flags.max_restarts,
        restarts_typed=flags.restarts_typed,
        nccl_aborts=nccl_settings.aborts(os.environ),
    )


def memory_kills() -> int | None:
    from holdfast.check.readers.cgroup import out_of_memory_kills

    return out_of_memory_kills()


def conduct(
    flags: RunFlags,
    watch: JobWatch,
    files: RunFiles,
    *,
    rounds: RoundSource | None = None,
    settings: Callable[[], dict[str, str]] = dict,
    fence: RankFence | None = None,
) -> int:
    """`settings` are added to the environment of ranks that are about to start; `fence` where
    they must not outlive a lease."""
    from functools import partial

    from holdfast.rank import delivery
    from holdfast.run.launch import launch, scheduler
    from holdfast.run.launch.pump import write_all

    scheduler.ask_for_end(os.environ)

    verify = {delivery.VERIFY: str(flags.verify_replicas)} if flags.verify_replicas else {}

    def environment(local_rank: int, inherited: dict[str, str]) -> dict[str, str]:
        return {**settings(), **watch.rank_environment(local_rank, inherited), **verify}

    code = OWN_FAILURE
    places = files.places
    try:
        code = launch.start(
            flags,
            watcher=watch,
            paths=places.paths,
            places=places,
            rank_environment=environment,
            wrap=partial(delivery.command, lease=fence.page if fence else ""),
            write=files.screen.beside(write_all),
            rounds=rounds,
            fence=fence,
        )
    finally:
        watch.close()
        places.copy()
        _end(code, watch, files)
    _leave_root_cause(code, watch, places)
    return code


def _leave_root_cause(code: int, watch: JobWatch, places: RunPlaces) -> None:
    """For the program that started us, where it asks for it."""
    from holdfast.run.launch import error_file

    if watch.stop_signal:
        leave_error(f"stopped by {watch.stop_signal}", code)
    elif code and watch.acted_on:
        found, scene = watch.acted_on
        where = places.readable.error if places.readable else None
        failure = error_file.of_failure(found, scene, code=code, wall=time.time(), file_of=where)
        error_file.write(os.environ, failure)
    elif code:
        leave_error(f"the job failed with exit code {code}", code)


def leave_error(sentence: str, code: int) -> None:
    from holdfast.run.launch import error_file

    error_file.write(os.environ, error_file.document(sentence, code=code, wall=time.time()))


def _end(code: int, watch: JobWatch, files: RunFiles) -> None:
    from holdfast.run.runs import report

    journal, screen, places = files.journal, files.screen, files.places
    journal.write(watch.end_record(code))
    summary = report.summarise(journal.records())
    screen.say(_explained(summary, files, places.readable.folder) if code and places.readable
               else report.lines(summary))  # fmt: skip
    if missing := places.close():
        screen.say(missing)
    screen.close()
    journal.close()


def _explained(summary: RunReport, files: RunFiles, folder: str) -> list[str]:
    """The end of a run that failed: what its folder shows now that everything is in it."""
    from holdfast.cli import run_ending
    from holdfast.run.runs import report

    if summary.failures.stop:
        return report.lines(summary)
    found, remark = run_ending.explain(folder)
    if found is not None:
        files.journal.write(run_ending.record(found))
    told = report.lines(summary, diagnosis=found, folder=folder)
    return [remark, *told] if remark else told
