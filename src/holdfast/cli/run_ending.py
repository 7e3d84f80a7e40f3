"""The end of a failed `holdfast run`: its folder explained, the root cause last.

The verdict was given while the job lived. Now that all logs are there, `explain` may know a better
name for it; if it only agrees, one line says where the evidence is.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

from holdfast import shell_words

if TYPE_CHECKING:
    from holdfast.analysis.job.journal_records import DiagnosisRecord
    from holdfast.findings import Diagnosis

SECONDS = 5.0
"""a person waits for the prompt, or a scheduler for the node"""
LARGEST = 256 << 20
"""bytes of a run folder that are read in that time on any machine"""


def record(found: Diagnosis) -> DiagnosisRecord:
    """For the journal."""
    from holdfast.analysis.job.journal_records import DiagnosisRecord

    rank = found.culprit.rank if found.culprit else None
    return DiagnosisRecord(
        code=found.code,
        slug=found.slug,
        confidence=found.confidence,
        ranks=() if rank is None else (rank,),
        victims=found.victims,
        reason=found.reason,
        fix=found.fix,
    )


def explain(folder: str) -> tuple[Diagnosis | None, str]:
    """What `holdfast explain` says first of this folder, and a remark where it could not be asked.

    Never raises, and never takes long: a run's exit code does not wait for our curiosity.
    """
    if _size(folder) > LARGEST:
        return None, f"the logs are large; read them with {_command(folder)}"
    answers: list[Diagnosis | None] = []
    problems: list[str] = []

    def ask() -> None:
        try:
            answers.append(_first_answer(folder))
        except Exception as bug:  # noqa: BLE001 - the run's own verdict holds in any case
            problems.append(f"explaining the folder failed: {type(bug).__name__}: {bug}")

    thread = threading.Thread(target=ask, name="explain", daemon=True)
    thread.start()
    try:
        thread.join(SECONDS)
    except KeyboardInterrupt:  # the user does not want to wait
        return None, ""
    if problems:
        return None, problems[0]
    if not answers:
        return (
            None,
            f"explaining it takes longer than {SECONDS:g} s; run {_command(folder)}",
        )
    return answers[0], ""


def _command(folder: str) -> str:
    return f"`holdfast explain {shell_words.word(folder, 'RUN')}`"


def _first_answer(folder: str) -> Diagnosis | None:
    from holdfast import catalogue
    from holdfast.explain.diagnose import diagnose
    from holdfast.explain.gather import gather

    report = diagnose(gather([folder]), (entry.fault for entry in catalogue.entries()))
    return report.diagnoses[0] if report.diagnoses else None


def _size(folder: str) -> int:
    files = (os.path.join(where, name) for where, _, names in os.walk(folder) for name in names)
    return sum(os.lstat(file).st_size for file in files if os.path.lexists(file))
