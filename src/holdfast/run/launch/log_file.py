"""One log of one rank, as the launcher sees it: a process of its own writes it."""

from __future__ import annotations

from holdfast.run.runs.folder_writer import FolderWriter, Refused
from holdfast.run.runs.writer_process import LOG_LIMIT


class RankLog:
    """Whole at both ends, and never larger than the disk can bear. No call raises or waits."""

    def __init__(
        self, writer: FolderWriter, path: str, *, elsewhere: str = "", limit: int = LOG_LIMIT
    ) -> None:
        """`elsewhere`: where the file really is, and `path` a link to there."""
        self.path = path
        self._writer = writer
        self._elsewhere = elsewhere
        self._limit = limit

    def when_refused(self, call: Refused) -> None:
        """`call`, from another thread, with all that could not be written, in order."""
        self._writer.when_refused(self.path, call)

    def write(self, text: bytes) -> None:
        self._writer.log(self.path, text, limit=self._limit, elsewhere=self._elsewhere)

    def close(self) -> None:
        self._writer.close_log(self.path)
