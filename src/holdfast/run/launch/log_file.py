"""One log of one rank, as the launcher sees it: a process of its own writes it."""

from __future__ import annotations

from holdfast.run.launch.log_places import LogPlace
from holdfast.run.runs.folder_writer import FolderWriter, Refused


class RankLog:
    """Whole at both ends, and never larger than the disk can bear. No call raises or waits."""

    def __init__(self, writer: FolderWriter, place: LogPlace) -> None:
        self.path = place.path
        self._writer = writer
        self._place = place

    def when_refused(self, call: Refused) -> None:
        """`call`, from another thread, with all that could not be written, in order."""
        self._writer.when_refused(self.path, call)

    def write(self, text: bytes) -> None:
        place = self._place
        self._writer.log(place.path, text, limit=place.limit, elsewhere=place.elsewhere)

    def close(self) -> None:
        self._writer.close_log(self.path)
