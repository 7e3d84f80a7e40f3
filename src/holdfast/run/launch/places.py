"""Where one run keeps what: its folder, and what stands in for it while that disk hangs."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.analysis.job.run_paths import RunPaths
from holdfast.analysis.rules.rule import NO_RULES, RuleSet
from holdfast.run.launch.output_rules import OutputRules
from holdfast.run.launch.output_tail import OutputTails
from holdfast.run.launch.socket_folder import LocalFolder
from holdfast.run.runs.folder_writer import FolderNews, FolderWriter

LAST_LINES = 5.0
"""seconds for the disk to take the last of it"""


class RunPlaces:
    def __init__(
        self,
        paths: RunPaths | None,
        tell: Callable[[FolderNews], None],
        rules: RuleSet = NO_RULES,
    ) -> None:
        """`paths` is None when nothing can be kept; `tell` is called from another thread."""
        self.paths = paths
        self.local = LocalFolder()
        self.tails = OutputTails()
        self.rules = OutputRules(rules)
        self.writer: FolderWriter | None = None
        if paths is not None:
            self.writer = FolderWriter(paths.folder, tell=tell, keep_open=(self.local.lock,))
            self.writer.mirror(self.local.path)

    @property
    def readable(self) -> RunPaths | None:
        """The run's folder, unless its disk hangs: who reads there then hangs too."""
        return self.paths if self.writer is not None and self.writer.answers else None

    def copy(self) -> None:
        """All that ranks wrote is in the run's folder now, if its disk answers."""
        if self.writer is not None:
            self.writer.wait(self.writer.copy_now(), LAST_LINES)

    def close(self) -> str:
        """'' or what is missing in the run's folder."""
        missing = self.writer.close(LAST_LINES) if self.writer is not None else ""
        if not missing:  # else the writer, left behind, may still copy it when the disk comes back
            self.local.remove()
        return missing
