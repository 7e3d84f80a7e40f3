"""Small saves of a few ranks, for any kind of disk."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from holdfast.checkpoint import choose, commit
from holdfast.checkpoint.commit import AskedRoom, MadeRoom, SaveControl, SaveError, SaveFolder
from holdfast.checkpoint.files import Files, read
from holdfast.checkpoint.messages import CheckpointInfo, FilePiece, SaveOrder

PIECE_SIZE = 20
"""bytes: a file of tensors here has three pieces"""


@dataclass(frozen=True)
class Bytes:
    """A file in memory."""

    name: str
    text: bytes

    @property
    def size(self) -> int:
        return len(self.text)

    def view(self, start: int, end: int) -> memoryview:
        return memoryview(self.text)[start:end]


class Clock:
    """Moves only by sleeping."""

    def __init__(self) -> None:
        self.now = 0.0

    def control(self) -> SaveControl:
        return SaveControl(
            clock=lambda: self.now, wall=lambda: self.now, sleep=self.sleep, piece_size=PIECE_SIZE
        )

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def content(rank: int, step: int) -> list[Bytes]:
    return [
        Bytes(f"rank-{rank}.safetensors", bytes([rank]) * 10 + f"tensors of {step}".encode() * 3),
        Bytes(f"rank-{rank}.json", f'{{"step": {step}}}'.encode()),
    ]


def request(root: str, step: int, rank: int = 0, world: int = 2, keep: int = 2) -> SaveOrder:
    return SaveOrder(
        folder=root,
        step=step,
        token=f"{step:04x}",
        rank=rank,
        world_size=world,
        pieces=(),
        about=CheckpointInfo(epoch=1, structure="abc", config={"lr": "0.1"}),
        keep=keep,
    )


def save(
    files: Files, root: str, step: int, *, world: int = 2, keep: int = 2, keep_every: int = 0
) -> Iterator[str]:
    """All ranks' work of one save, rank 0 last; yields the path as soon as it is committed."""
    place, clock = SaveFolder(root, step, f"{step:04x}"), Clock()
    order = msgspec.structs.replace(
        request(root, step, world=world, keep=keep), keep_every=keep_every or None
    )
    made = MadeRoom(files, place, order)

    def rank_0_looks(seconds: float) -> None:
        """While another rank waits: it asks for room."""
        made.answer(files.listdir(place.temporary))
        clock.sleep(seconds)

    other = msgspec.structs.replace(clock.control(), sleep=rank_0_looks)
    try:
        for rank in range(1, world):
            pieces = tuple(FilePiece(name=source.name) for source in content(rank, step))
            asked = msgspec.structs.replace(order, rank=rank, pieces=pieces)
            room = AskedRoom(files, place, asked, other)

            def write_and_tell(rank: int = rank, room: AskedRoom = room) -> None:
                part = commit.write_part(
                    files, place, rank, content(rank, step), stall=0.1, control=other, room=room
                )
                commit.hand_over(files, place, part)

            commit.with_room(room, write_and_tell)
        control = clock.control()
        own = commit.write_part(
            files, place, 0, content(0, step), stall=0.2, control=control, room=made
        )
        path, _ = commit.commit(files, place, own, order, control, made)
    except (OSError, SaveError):
        commit.abandon(files, place)
        raise
    yield path
    commit.retain(
        files, root, keep=keep, keep_every=keep_every or None, newest=path, token=place.token
    )


def save_all(files: Files, root: str, step: int, **more: int) -> str:
    [path] = list(save(files, root, step, **more))
    return path


def newest_whole(files: Files, root: str) -> int:
    """As `resume` chooses: the step of the newest that verifies, its bytes those of that step."""
    for candidate in choose.candidates(root, files):
        if candidate.problem or candidate.manifest is None:
            continue
        if choose.verify(candidate.path, candidate.manifest.files, files):
            continue
        for rank in range(candidate.manifest.world_size):
            for source in content(rank, candidate.step):
                assert read(files, f"{candidate.path}/{source.name}") == source.text
        return candidate.step
    return 0


def try_save(files: Files, root: str, step: int, **more: int) -> bool:
    with contextlib.suppress(OSError, SaveError):
        save_all(files, root, step, **more)
        return True
    return False
