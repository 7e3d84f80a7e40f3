"""Which checkpoint a job resumes from, on every rank the same one: rank 0 asks, all look.

    rank 0: ask/N {path, …}   ->   every rank: seen/N/RANK {problem}   ->   rank 0: ask/N+1 …

The first question is for the folder itself: does every rank see the lock that rank 0 has just
written? The bytes of a checkpoint are read by all ranks, each a share of the files. What their
looks mean is decided by resume_decision.py; nothing is moved before one checkpoint is taken.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Collection

import msgspec

from holdfast.analysis.checkpoints.manifest import Manifest, order_of
from holdfast.checkpoint import choose, lock, resume_decision
from holdfast.checkpoint.choose import CheckpointProblem
from holdfast.checkpoint.cores import disk_threads, ranks_here
from holdfast.checkpoint.files import DISK, Files
from holdfast.checkpoint.message_board import MessageBoard
from holdfast.checkpoint.resume_decision import RankLook, ResumeDecision
from holdfast.checkpoint.verify import BytesTaker
from holdfast.errors import (
    CheckpointsGone,
    EnvironmentFailure,
    Error,
    FolderNotShared,
    ResumeRefused,
)
from holdfast.rank.events import tell
from holdfast.rank.print_line import say
from holdfast.system.filesystem import LOCAL, filesystem_at

PATIENCE = 60.0
"""seconds for what cannot be read now, or not by all: NFS may hide a new name so long (acdirmax)"""
LONGEST_PAUSE = 8.0
SHARE_IT = "put the folder on a file system that all machines of the job share"


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What rank 0 wants looked at; with `final`, what it has decided."""

    path: str = ""
    file: str = ""
    """only this one, and only by these ranks; else each rank looks at its share"""
    by: tuple[int, ...] = ()
    token: str = ""
    """of the lock, which every rank must see in the folder `path`"""
    final: bool = False
    refusal: str = ""
    hint: str = ""
    slugs: tuple[str, ...] = ()
    config: dict[str, str] = {}
    """with `final`: rank 0's, the only one that counts"""


class RankDisk:
    """How one rank sees the folder."""

    def __init__(
        self,
        board: MessageBoard,
        files: Files = DISK,
        host: str = "",
        ahead: Callable[[str, Manifest], BytesTaker | None] = lambda _path, _saved: None,
    ) -> None:
        """`ahead`: who wants the bytes of a checkpoint while they are verified."""
        self.board, self._files, self._ahead = board, files, ahead
        self.host = host or socket.gethostname()

    def look(self, question: Question) -> RankLook:
        rank, path = self.board.rank, question.path
        if question.token:
            sees = sees_token(path, question.token)
            return RankLook(rank=rank, host=self.host, absent=not sees)
        if question.by and rank not in question.by:
            return RankLook(rank=rank, host=self.host)
        if not self._files.exists(path):
            return RankLook(rank=rank, host=self.host, absent=True)
        problem = self._file(path, question.file) if question.by else self._share(path)
        return RankLook(rank=rank, host=self.host, problem=problem)

    def _share(self, path: str) -> CheckpointProblem | None:
        """Not the size of every file: with thousands of ranks that is millions of questions."""
        found = choose.first_look(path, self._files)
        if found.problem or found.manifest is None:
            return found.problem
        return choose.verify(
            path,
            found.manifest.files,
            self._files,
            rank=self.board.rank,
            world_size=self.board.world_size,
            threads=disk_threads(ranks_here()),
            taker=self._ahead(path, found.manifest),
        )

    def _file(self, path: str, name: str) -> CheckpointProblem | None:
        """The sizes of all files, and the bytes of this one."""
        found = choose.inspect(path, self._files)
        if found.problem or found.manifest is None:
            return found.problem
        entries = [entry for entry in found.manifest.files if entry.name == name]
        return choose.verify(path, entries, self._files, threads=disk_threads(1))


def not_shared(blind: str, writer: str, folder: str) -> FolderNotShared:
    return FolderNotShared(
        f"{blind} does not see what {writer} wrote into {folder}: each machine has a folder of its "
        "own there",
        hint=SHARE_IT,
    )


def sees_token(
    folder: str, token: str, *, sleep: Callable[[float], None] = time.sleep, patience: float = -1
) -> bool:
    """At once on a local disk; on any other a new name may take a while to be seen."""
    left, pause = PATIENCE if patience < 0 else patience, 0.01
    while lock.token_in(folder) != token:
        if left <= 0 or filesystem_at(_nearest(folder)) in LOCAL:
            return False
        sleep(pause)
        left, pause = left - pause, min(2 * pause, 1.0)
    return True


def _nearest(folder: str) -> str:
    """The folder, or the first one above it that is there: a share that is not mounted leaves none
    of its own."""
    while not os.path.isdir(folder) and folder != os.path.dirname(folder):
        folder = os.path.dirname(folder)
    return folder


def follow(view: RankDisk) -> Question:
    """Any rank but 0: look at what rank 0 asks for, until it has decided."""
    board, number = view.board, 0
    while True:
        asked = board.receive(f"ask/{number}", Question, purpose="resume")
        if asked.refusal:
            raise _refusal(asked)
        if asked.final:
            return asked
        board.post(f"seen/{number}/{board.rank}", view.look(asked))
        number += 1


def _refusal(asked: Question) -> Error:
    for kind in (FolderNotShared, CheckpointsGone):
        if asked.slugs == kind.slugs:
            return kind(asked.refusal, hint=asked.hint)
    if asked.slugs:
        return ResumeRefused(asked.refusal, hint=asked.hint, slugs=asked.slugs)
    return EnvironmentFailure(asked.refusal, hint=asked.hint)


class Leader:
    """Rank 0's side of it."""

    def __init__(
        self,
        view: RankDisk,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._view, self._board = view, view.board
        self._clock, self._sleep = clock, sleep
        self._number = 0
        self._hosts: list[str] = [view.host] * view.board.world_size
        self._until: float | None = None
        self._pause = 0.5

    # --- the whole conversation ----------------------------------------------------------------

    def choose(self, folder: str, token: str, accept: Collection[str]) -> str:
        """The path of the checkpoint to take; '' when there is none. `close` tells the others."""
        self._share_one_folder(folder, token)
        unusable: list[tuple[str, CheckpointProblem]] = []
        taken = ""
        for path in choose.committed(folder):
            problem = self._examine(path, may_skip="fresh" in accept)
            if problem is None:
                taken = path
                break
            unusable.append((path, problem))
        if unusable and not taken and "fresh" not in accept:
            raise ResumeRefused(
                resume_decision.none_taken(folder, unusable),
                hint="repair or restore one of them; to begin at step 0 anyway, call "
                'resume(accept={"fresh"}) or set HOLDFAST_ACCEPT=fresh',
                slugs=("checkpoint-corrupt",),
            )
        for path, problem in unusable:
            _set_aside(path, problem)
        return taken

    def close(self, answer: Question) -> None:
        self._board.post(f"ask/{self._number}", answer)

    def fail(self, problem: Error) -> None:
        """The others wait for an answer: they fail with the same sentence."""
        self.close(
            Question(final=True, refusal=problem.sentence, hint=problem.hint, slugs=problem.slugs)
        )

    # --- one checkpoint ------------------------------------------------------------------------

    def _examine(self, path: str, *, may_skip: bool) -> CheckpointProblem | None:
        """Its problem, which enough ranks agree on; raises where nothing can be decided."""
        while True:
            # Rank 0's own glance first: what is plainly wrong need not be read by everybody.
            own = self._view.look(Question(path=path, file="manifest.json", by=(0,)))
            looks = [own] if own.problem else self._ask(Question(path=path))
            decision = self._decide(path, looks, confirming=False)
            if decision.action == "confirm" and decision.problem:
                by = resume_decision.confirmers(looks, self._hosts)
                looks = self._ask(Question(path=path, file=decision.problem.file, by=by))
                decision = self._decide(path, [looks[rank] for rank in by], confirming=True)
            if decision.action == "take":
                return None
            if decision.action == "set-aside":
                return decision.problem
            if decision.action == "refuse":
                problem = next((look.problem for look in looks if look.problem), None)
                if may_skip and problem:
                    return problem
                raise EnvironmentFailure(decision.sentence, hint=decision.hint)
            self._wait(decision)

    def _decide(self, path: str, looks: list[RankLook], *, confirming: bool) -> ResumeDecision:
        over = self._until is not None and self._clock() >= self._until
        return resume_decision.decide(path, looks, confirming=confirming, time_is_over=over)

    def _wait(self, decision: ResumeDecision) -> None:
        if self._until is None:
            self._until = self._clock() + PATIENCE
            say(f"resume: {decision.sentence}; looking again for up to {PATIENCE:g} s")
        self._sleep(self._pause)
        self._pause = min(2 * self._pause, LONGEST_PAUSE)

    def _ask(self, question: Question) -> list[RankLook]:
        """Every rank's look, by rank."""
        board, number = self._board, self._number
        if board.world_size > 1:
            board.post(f"ask/{number}", question)
            self._number += 1
        own = self._view.look(question)
        return [own] + [
            board.receive(f"seen/{number}/{rank}", RankLook, sender=rank, purpose="resume")
            for rank in range(1, board.world_size)
        ]

    def _share_one_folder(self, folder: str, token: str) -> None:
        """A disk of its own in every machine would be noticed at the first save, or never."""
        if self._board.world_size == 1:
            return
        looks = self._ask(Question(path=folder, token=token))
        self._hosts = [look.host for look in looks]
        apart = next((look for look in looks if look.absent), None)
        if apart is not None:
            raise not_shared(apart.who, f"rank 0 on {self._hosts[0]}", folder)


def lies_in(folder: str, path: str) -> bool:
    """Whether it is a checkpoint of this folder: the store's answer may be anybody's."""
    return os.path.dirname(path) == folder and order_of(os.path.basename(path)) is not None


def _set_aside(path: str, problem: CheckpointProblem) -> None:
    aside = choose.set_aside(path, problem)
    where = f"moved to {aside.path}" if aside.moved else f"left in place: {aside.why_not}"
    say(f"skipped checkpoint {path}: {problem.why}; {where}")
    tell("set-aside", path=aside.path, why=problem.why, problem=problem.kind)
