"""The name of every file we write into a run's folder. Pure: nothing is made or read here."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

LATEST = "latest"
"""a link beside the runs to the newest of them"""
MARKER = "holdfast-run.json"
"""what makes a folder ours: it holds the run's id, so a renamed copy is the user's own"""
SECRET_VALUES = "secret-values.json"  # noqa: S105 - a file's name
"""what a bundle must not hold, and is never in one"""
RUN_ID = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}\Z"
"""what another machine may call a run: it becomes the name of a folder or an archive here"""
_TOP = frozenset(
    {
        MARKER,
        "journal.jsonl",
        "settings.json",
        "facts.json",
        "launcher.json",
        "rules.json",
        SECRET_VALUES,
    }
)
_ATTEMPT = re.compile(r"attempt-(0|[1-9][0-9]*)")
_EVIDENCE = re.compile(r"evidence-(0|[1-9][0-9]*)")


def is_ours(name: str) -> bool:
    """Whether we write an entry of this name into a run's folder; all below it is then ours."""
    return name in _TOP or _ATTEMPT.fullmatch(name) is not None


@dataclass(frozen=True)
class RunPaths:
    """`root/run_id/…`; attempts count from 0, as TORCHELASTIC_RESTART_COUNT does."""

    root: str
    run_id: str

    @property
    def folder(self) -> str:
        return os.path.join(self.root, self.run_id)

    @property
    def latest(self) -> str:
        return os.path.join(self.root, LATEST)

    @property
    def marker(self) -> str:
        return os.path.join(self.folder, MARKER)

    @property
    def journal(self) -> str:
        return os.path.join(self.folder, "journal.jsonl")

    @property
    def settings(self) -> str:
        return os.path.join(self.folder, "settings.json")

    @property
    def facts(self) -> str:
        return os.path.join(self.folder, "facts.json")

    @property
    def rules(self) -> str:
        """The user's own rules that the run was started with; there only where it had some."""
        return os.path.join(self.folder, "rules.json")

    @property
    def launcher(self) -> str:
        return os.path.join(self.folder, "launcher.json")

    @property
    def secret_values(self) -> str:
        """The values of the run's variables that are secrets; only its owner may read it."""
        return os.path.join(self.folder, SECRET_VALUES)

    # --- one attempt ---------------------------------------------------------------------------

    def attempt(self, attempt: int) -> str:
        return os.path.join(self.folder, f"attempt-{attempt}")

    def rank(self, attempt: int, rank: int) -> str:
        return os.path.join(self.attempt(attempt), f"rank-{rank}")

    def stdout(self, attempt: int, rank: int) -> str:
        return os.path.join(self.rank(attempt, rank), "stdout.log")

    def stderr(self, attempt: int, rank: int) -> str:
        return os.path.join(self.rank(attempt, rank), "stderr.log")

    def error(self, attempt: int, rank: int) -> str:
        """torch's TORCHELASTIC_ERROR_FILE"""
        return os.path.join(self.rank(attempt, rank), "error.json")

    def last_words(self, attempt: int, rank: int) -> str:
        return os.path.join(self.rank(attempt, rank), "last_words.json")

    def events(self, attempt: int, rank: int) -> str:
        """What the rank reported: saves, resumes (rank/events.py)."""
        return os.path.join(self.rank(attempt, rank), "events.jsonl")

    # --- what was seen when something went wrong -----------------------------------------------

    def evidence(self, attempt: int, number: int) -> str:
        return os.path.join(self.attempt(attempt), f"evidence-{number}")

    @staticmethod
    def evidence_number(name: str) -> int | None:
        """The number in such a folder's name; None for any other name."""
        found = _EVIDENCE.fullmatch(name)
        return int(found[1]) if found else None

    def stack(self, attempt: int, number: int, rank: int) -> str:
        return os.path.join(self.evidence(attempt, number), f"rank-{rank}.stack.json")

    def worker_stack(self, attempt: int, number: int, rank: int, pid: int) -> str:
        """Of a DataLoader worker that the rank waited for."""
        return os.path.join(self.evidence(attempt, number), f"rank-{rank}.worker-{pid}.json")

    def recorder(self, attempt: int, number: int, rank: int) -> str:
        return os.path.join(self.evidence(attempt, number), f"rank-{rank}.recorder.json")

    def activity(self, attempt: int, number: int, rank: int) -> str:
        return os.path.join(self.evidence(attempt, number), f"rank-{rank}.activity.json")

    def kernel_log(self, attempt: int, number: int) -> str:
        """The kernel's lines about our ranks and about GPUs."""
        return os.path.join(self.evidence(attempt, number), "kernel.log")

    def gpus(self, attempt: int, number: int) -> str:
        """What the driver said of every GPU."""
        return os.path.join(self.evidence(attempt, number), "gpus.json")

    def ras(self, attempt: int, number: int) -> str:
        """The answer of NCCL's RAS, as it came: JSON, or text before 2.28.7."""
        return os.path.join(self.evidence(attempt, number), "ncclras.txt")

    def missing(self, attempt: int, number: int) -> str:
        """What could not be had, and why."""
        return os.path.join(self.evidence(attempt, number), "missing.txt")
