"""Where each rank's output goes in each attempt, and what its environment is.

torch asks a LogsSpecs once per attempt, just before it starts the ranks, and takes back the
environment it handed over: the one public place where both can be set.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import socket
import tempfile
import time
from collections.abc import Callable, Sequence

from torch.distributed.elastic.multiprocessing import LogsDest, LogsSpecs, Std, to_map

from holdfast.analysis.job.run_paths import RunPaths
from holdfast.run.launch.log_file import RankLog
from holdfast.run.launch.log_places import NO_LIMIT, PREFIX_TEMPLATE, LogPlaces, line_prefix
from holdfast.run.launch.output_tail import OutputTails
from holdfast.run.launch.pump import OutputPump, RankStream, Writer, warn, write_all
from holdfast.run.launch.terminal import is_one_place
from holdfast.run.runs.folder_writer import FolderWriter, Refusal

Environment = dict[str, str]
PrepareEnvironment = Callable[[int, Environment], Environment]
INHERITED = ""
"""torch's word for: the rank writes where we write"""
Copies = tuple[RankLog, tuple[bytes, ...]]
Heard = Callable[[int, int, bytes, float], None]
LAST_LINES = 5.0
"""seconds for the disk to take the end of the logs"""


class Logs(LogsSpecs):
    """The output of every rank: on the screen unchanged and in a file of its own attempt.

    What the user asked torchrun for is honoured: `--redirects` keeps a stream off the screen,
    `--tee` puts the rank's name before each line, `--local-ranks-filter` shows some ranks only,
    `--log-dir` says where the files are.
    """

    def __init__(  # noqa: PLR0913 - four of them are torch's
        self,
        log_dir: str | None = None,
        redirects: Std | dict[int, Std] = Std.NONE,
        tee: Std | dict[int, Std] = Std.NONE,
        local_ranks_filter: set[int] | None = None,
        *,
        paths: RunPaths | None = None,
        local: RunPaths | None = None,
        folder_writer: FolderWriter | None = None,
        tails: OutputTails | None = None,
        heard: Heard | None = None,
        rank_environment: PrepareEnvironment | None = None,
        copies: tuple[Sequence[str], Sequence[str]] = ((), ()),
        instead: LogsSpecs | None = None,
        write: Writer = write_all,
        pty: bool = True,
        prefix_template: str = "",
    ) -> None:
        """The first four are torch's own. Without `paths` nothing is kept, only shown. `local`: a
        copy of that folder on a local disk, for what ranks write themselves. `copies` are
        torchrun's --duplicate-*-filters, `instead` the user's own --logs-specs: it then says where
        output goes. `pty`: where we write to a terminal, a rank does. `prefix_template`: what
        --tee puts before each line, where the flag says so. `heard` gets the rank, 0 for stdout or
        1, and all that is printed there."""
        super().__init__(log_dir, redirects, tee, local_ranks_filter)
        self.attempt = -1
        self.next_attempt: int | None = None
        """where the coordinator of several nodes counts them; else every start is one more"""
        self.outlived = False
        """processes of ranks that ended well were left alone, and may print on"""
        self._paths = paths
        self._local = local or paths
        self._writer = folder_writer
        self._own_writer: FolderWriter | None = None
        self._tails = tails or OutputTails()
        self._heard = heard
        self._places = LogPlaces(paths, log_dir) if paths else None
        self._rank_environment = rank_environment
        self._copies = copies
        self._instead = instead
        self._write = write
        self._pty = pty
        self._prefix_template = prefix_template
        self._pump: OutputPump | None = None
        self._error_copies: dict[str, str] = {}
        self._said: set[str] = set()

    @property
    def root_log_dir(self) -> str:
        return self._paths.folder if self._paths else os.devnull

    def reify(self, envs: dict[int, Environment]) -> LogsDest:
        self.attempt = self.attempt + 1 if self.next_attempt is None else self.next_attempt
        if self._instead is not None:
            destination = self._instead.reify(envs)
        else:
            destination = self._destination(envs)
        for local_rank, env in envs.items():
            # torch counts only the restarts that it decided itself.
            env["TORCHELASTIC_RESTART_COUNT"] = str(self.attempt)
            self._prepare(local_rank, env)
        return destination

    def _prepare(self, local_rank: int, env: Environment) -> None:
        if self._rank_environment is None:
            return
        try:
            prepared = self._rank_environment(local_rank, dict(env))
        except Exception as bug:  # noqa: BLE001 - the training matters more than our view of it
            self._say_once(f"monitoring inside the ranks is disabled: {type(bug).__name__}: {bug}")
        else:
            env.clear()
            env.update(prepared)

    def _destination(self, envs: dict[int, Environment]) -> LogsDest:
        if self._pump is None:
            self._pump = OutputPump(write=self._write)
            atexit.register(self.close)  # stock torchrun does not know that it should
        if self._writer is None and self._paths:
            self._writer = self._own_writer = FolderWriter(
                self._paths.folder, tell=lambda news: warn(news.sentence)
            )
        self._tails.forget()
        files: tuple[dict[int, str], dict[int, str]] = ({}, {})
        errors: dict[int, str] = {}
        copies = [self._copy_file(kind, envs) for kind in (0, 1)]
        redirects, tees = to_map(self._redirects, len(envs)), to_map(self._tee, len(envs))
        for local_rank, env in envs.items():
            errors[local_rank] = self._error_file(env)
            env["TORCHELASTIC_ERROR_FILE"] = errors[local_rank]
            asked = redirects[local_rank] | tees[local_rank]
            if not asked and self._shows(local_rank) and is_one_place(1, 2):
                both = self._stream(0, env, both=True)
                files[0][local_rank] = files[1][local_rank] = self._connect(both, self._like(1))
                continue
            for kind, std in ((0, Std.OUT), (1, Std.ERR)):
                tee, hidden = bool(tees[local_rank] & std), bool(redirects[local_rank] & std)
                stream = self._stream(
                    kind,
                    env,
                    hidden=hidden and not tee,
                    prefix=self._line_prefix(env) if tee else b"",
                    copies=copies[kind] if tee else None,
                )
                # As under torchrun, which gives a rank a file for what it hides or prefixes.
                as_is = self._shows(local_rank) and not asked & std
                files[kind][local_rank] = self._connect(
                    stream, self._like(kind + 1) if as_is else None
                )
        return LogsDest(stdouts=files[0], stderrs=files[1], error_files=errors)

    def _line_prefix(self, env: Environment) -> bytes:
        template = self._prefix_template or os.environ.get(PREFIX_TEMPLATE, "")
        return line_prefix(env, template, host=socket.gethostname())

    def _shows(self, local_rank: int) -> bool:
        return not self._local_ranks_filter or local_rank in self._local_ranks_filter

    def _like(self, number: int) -> int | None:
        """The terminal that a rank is to believe it writes to."""
        return number if self._pty and os.isatty(number) else None

    def _stream(
        self,
        kind: int,
        env: Environment,
        *,
        both: bool = False,
        hidden: bool = False,
        prefix: bytes = b"",
        copies: Copies | None = None,
    ) -> RankStream:
        """`both`: the rank's stdout and stderr in one, as they go to one place."""
        rank, name = int(env["RANK"]), ("stdout", "stderr")[kind]
        log = self._log(rank, name, env)
        last_words = both or kind == 1
        stream = RankStream(
            f"rank {rank}" if both else f"rank {rank} ({name})",
            screen=kind + 1,
            shown=not (hidden and log) and self._shows(int(env["LOCAL_RANK"])),
            log=log,
            prefix=prefix,
            copies=copies,
            heard=functools.partial(self._hear, rank, kind, last_words),
        )
        if log is not None:
            log.when_refused(functools.partial(self._refused, stream))
            if last_words:
                self._tails.keep_file(rank, log.path)
        return stream

    def _hear(self, rank: int, kind: int, last_words: bool, text: bytes) -> None:  # noqa: FBT001
        if last_words:
            self._tails.add(rank, text)
        if self._heard:
            self._heard(rank, kind, text, time.monotonic())

    def _connect(self, stream: RankStream, like: int | None) -> str:
        assert self._pump
        try:
            return self._pump.open(stream, like=like)
        except OSError as problem:  # no descriptors left
            self._say_once(f"output goes to the screen only: {problem.strerror}")
            return INHERITED

    def _error_file(self, env: Environment) -> str:
        """'' when there is no place for it."""
        if self._local is None:
            return ""
        rank = int(env["RANK"])
        try:
            os.makedirs(self._local.rank(self.attempt, rank), exist_ok=True)
        except OSError as problem:
            self._no_log(problem.strerror or str(problem))
            return ""
        path = self._local.error(self.attempt, rank)
        if self._places and (named := self._places.error_file(self.attempt, env)):
            self._error_copies[path] = named
        return path

    def _copy_error_files(self) -> None:
        """To where --log-dir has them; a rank never writes to a disk that may hang."""
        for path, named in list(self._error_copies.items()):
            with contextlib.suppress(OSError), open(path, "rb") as file:
                if self._writer is not None:
                    self._writer.log(named, file.read(), limit=NO_LIMIT)
                    self._writer.close_log(named)
                    del self._error_copies[path]

    def _log(self, rank: int, name: str, env: Environment) -> RankLog | None:
        if self._places is None or self._writer is None:
            return None
        log = RankLog(self._writer, self._places.log(self.attempt, rank, name, env))
        log.write(b"")  # makes it and its folder
        return log

    def _refused(self, stream: RankStream, refusal: Refusal) -> None:
        """From the writer's thread: the disk did not take this text."""
        if refusal.why and refusal.opened:
            warn(
                f"cannot write the log of {stream.name} ({refusal.why}): "
                "its output goes to the screen only"
            )
        elif refusal.why:
            self._no_log(refusal.why)
        stream.refused(refusal.text, self._write)

    def _copy_file(self, kind: int, envs: dict[int, Environment]) -> Copies | None:
        """torchrun's --duplicate-stdout-filters: one file for all ranks of an attempt."""
        if not self._copies[kind] or self._places is None or self._writer is None:
            return None
        name = ("stdout", "stderr")[kind]
        needles = tuple(needle.encode(errors="replace") for needle in self._copies[kind])
        log = RankLog(self._writer, self._places.filtered(self.attempt, name, envs[0]))
        log.when_refused(lambda refusal: self._say_once(f"cannot write {log.path} ({refusal.why})"))
        return log, needles

    def _no_log(self, why: str) -> None:
        self._say_once(
            f"cannot write logs to {self.root_log_dir} ({why}): output goes to the screen only"
        )

    def _say_once(self, sentence: str) -> None:
        if sentence not in self._said:
            self._said.add(sentence)
            warn(sentence)

    # --- our agent's calls ---------------------------------------------------------------------

    def started(self) -> None:
        if self._pump is not None:
            self._pump.started()

    def settle(self) -> None:
        """Everything the ranks printed so far is on the screen when this returns."""
        if self._pump is not None:
            self._pump.settle()
        self._copy_error_files()
        if self._writer is not None:
            self._writer.wait(self._writer.number, 1.0)

    def close(self) -> None:
        self._copy_error_files()
        if self._pump is not None:
            self._pump.close(outlived=self.outlived)
            self._pump = None
            atexit.unregister(self.close)
        if self._own_writer is not None:
            if missing := self._own_writer.close(LAST_LINES):
                warn(missing)
            self._writer = self._own_writer = None


class TorchrunLogs(Logs):
    """The entry point `torchrun.logs_specs`: stock torchrun makes no run folder."""

    def __init__(
        self,
        log_dir: str | None = None,
        redirects: Std | dict[int, Std] = Std.NONE,
        tee: Std | dict[int, Std] = Std.NONE,
        local_ranks_filter: set[int] | None = None,
    ) -> None:
        base = os.path.abspath(log_dir) if log_dir else None
        if base:
            os.makedirs(base, exist_ok=True)
        folder = tempfile.mkdtemp(prefix="holdfast_", dir=base)
        paths = RunPaths(*os.path.split(folder))
        super().__init__(None, redirects, tee, local_ranks_filter, paths=paths)
