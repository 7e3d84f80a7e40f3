"""Where each rank's files are: in the run's folder, or where --log-dir says, as torchrun has them.

`DIR/ID_RANDOM/attempt_N/LOCAL_RANK/stdout.log`, `stderr.log`, `error.json`, and
`DIR/ID_RANDOM/attempt_N/filtered_stdout.log`; the run's folder then has links to the logs.
Pure: nothing is made here.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from string import Template

from holdfast.analysis.job.run_paths import RunPaths
from holdfast.run.runs.writer_process import LOG_LIMIT

NO_LIMIT = 0
PREFIX_TEMPLATE = "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"
DEFAULT_PREFIX = "[${role_name}${local_rank}]:"


@dataclass(frozen=True)
class LogPlace:
    path: str
    elsewhere: str = ""
    """where the file really is, `path` being a link"""
    limit: int = LOG_LIMIT
    """bytes; none where the user named the folder: who asked for logs gets all of them"""


class LogPlaces:
    def __init__(self, paths: RunPaths, log_dir: str | None) -> None:
        self._paths = paths
        self._log_dir = os.path.abspath(log_dir) if log_dir else ""
        self._random = secrets.token_hex(4)

    def log(self, attempt: int, rank: int, name: str, env: dict[str, str]) -> LogPlace:
        """`name` is 'stdout' or 'stderr'."""
        place = self._paths.stdout if name == "stdout" else self._paths.stderr
        return self._linked(place(attempt, rank), attempt, env, env["LOCAL_RANK"], f"{name}.log")

    def filtered(self, attempt: int, name: str, env: dict[str, str]) -> LogPlace:
        path = os.path.join(self._paths.attempt(attempt), f"filtered_{name}.log")
        return self._linked(path, attempt, env, f"filtered_{name}.log")

    def error_file(self, attempt: int, env: dict[str, str]) -> str:
        """'' where the user named no folder."""
        return self._there(attempt, env, env["LOCAL_RANK"], "error.json") if self._log_dir else ""

    def _linked(self, path: str, attempt: int, env: dict[str, str], *names: str) -> LogPlace:
        if not self._log_dir:
            return LogPlace(path)
        return LogPlace(path, elsewhere=self._there(attempt, env, *names), limit=NO_LIMIT)

    def _there(self, attempt: int, env: dict[str, str], *names: str) -> str:
        run = f"{env.get('TORCHELASTIC_RUN_ID') or self._paths.run_id}_{self._random}"
        return os.path.join(self._log_dir, run, f"attempt_{attempt}", *names)


def line_prefix(env: Mapping[str, str], template: str, *, host: str) -> bytes:
    """What --tee puts before each line of this rank, by torchrun's rule."""
    filled = Template(template or DEFAULT_PREFIX).safe_substitute(
        role_name=env.get("ROLE_NAME", ""),
        rank=env.get("RANK"),
        local_rank=env.get("LOCAL_RANK"),
        hostname=host,
    )
    return filled.encode(errors="replace")
