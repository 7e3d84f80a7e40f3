"""A disk that is full: what may go goes, the last whole checkpoint never, and the save comes."""

from __future__ import annotations

import errno
import os
import random
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.analysis.checkpoints.manifest import step_of_temporary
from holdfast.checkpoint import choose, commit
from holdfast.checkpoint.commit import AskedRoom, MadeRoom, SaveControl, SaveError, SaveFolder
from holdfast.checkpoint.files import DISK, Disk, OpenFile
from holdfast.checkpoint.full_disk import with_room
from holdfast.checkpoint.reader_lock import hold
from holdfast.checkpoint.retention import droppable
from tests.checkpoint.crashing_files import Crash, CrashingFiles, Keep
from tests.checkpoint.small_saves import content, newest_whole, request, save_all, try_save

ROOT = "/data/ckpts"


def names(*steps: int) -> list[str]:
    return [f"step-{step:09d}" for step in steps]


@pytest.mark.parametrize(
    ("whole", "broken", "every", "freed", "may_go"),
    [
        ((10, 20, 30), (), None, 0, (10, 20)),
        ((10, 20), (), None, 0, (10,)),
        ((10,), (), None, 0, ()),  # the last whole one never
        ((), (10, 20), None, 0, ()),
        ((10,), (20, 30), None, 0, ()),  # broken ones make nothing safe
        ((10, 20, 30), (40,), None, 0, (10, 20)),
        ((10, 110, 120, 130), (), 100, 0, (120,)),  # the first of every hundred stays
        ((10, 110), (), 100, 0, ()),
        ((10, 20, 30), (), None, 99, (10, 20)),  # not yet as much as one takes
        ((10, 20, 30), (), None, 100, ()),  # enough was freed, and it did not help
    ],
)
def test_which_may_go_for_the_next(
    whole: tuple[int, ...],
    broken: tuple[int, ...],
    every: int | None,
    freed: int,
    may_go: tuple[int, ...],
) -> None:
    sizes = dict.fromkeys(names(*whole), 100)
    assert droppable(names(*whole, *broken), sizes, 200, every, freed) == names(*may_go)


@given(
    steps=st.sets(st.integers(0, 400)),
    whole=st.sets(st.integers(0, 400)),
    every=st.none() | st.integers(1, 100),
    freed=st.integers(0, 300),
)
def test_whatever_goes_a_whole_one_stays(
    steps: set[int], whole: set[int], every: int | None, freed: int
) -> None:
    whole &= steps
    found = droppable(names(*steps), dict.fromkeys(names(*whole), 100), 401, every, freed)
    gone = {int(name[5:]) for name in found}
    assert gone <= whole
    assert not whole or max(whole) not in gone
    assert found == sorted(found)
    if every:
        assert {step // every for step in steps - gone} == {step // every for step in steps}


def disk(capacity: int | None) -> CrashingFiles:
    files = CrashingFiles()
    files.make_folder("/data")
    files.fsync_folder("/")
    files.capacity = capacity
    return files


def size_of_one() -> int:
    files = disk(None)
    path = save_all(files, ROOT, 10)
    return sum(files.size(f"{path}/{name}") for name in files.listdir(path))


def steps(files: CrashingFiles) -> list[int]:
    return [found.step for found in choose.candidates(ROOT, files) if not found.problem]


ONE = size_of_one()


def test_a_disk_for_two_and_a_half_gets_every_save() -> None:
    files = disk(int(2.5 * ONE))
    for step in range(10, 100, 10):
        save_all(files, ROOT, step, keep=3)
        assert steps(files)[0] == step
        assert len(steps(files)) <= 2


def test_what_is_kept_for_good_stays_though_nothing_more_fits() -> None:
    files = disk(int(2.9 * ONE))
    assert try_save(files, ROOT, 10, keep=3, keep_every=100)
    assert try_save(files, ROOT, 110, keep=3, keep_every=100)
    assert not try_save(files, ROOT, 120, keep=3, keep_every=100)
    assert steps(files) == [110, 10]


def test_a_disk_that_fills_up_with_something_else_costs_one_checkpoint_a_save() -> None:
    files = disk(int(9.5 * ONE))
    for step in range(10, 90, 10):
        save_all(files, ROOT, step, keep=8)
    files.capacity = 0  # whatever is freed, another takes
    assert not try_save(files, ROOT, 90, keep=8)
    assert len(steps(files)) == 7
    for step in range(100, 200, 10):
        assert not try_save(files, ROOT, step, keep=8)
    assert steps(files) == [80], "the last one stays"


def test_a_crash_at_every_point_of_a_save_that_makes_room() -> None:
    stop = 0
    while True:
        files = disk(int(2.5 * ONE))
        for step in (10, 20):
            save_all(files, ROOT, step, keep=3)
        files.stop = files.done + stop
        try:
            save_all(files, ROOT, 30, keep=3)
        except Crash:
            pass
        else:
            break
        chance = random.Random(stop)
        keeps: list[Keep] = [lambda _: 0, lambda n: n, lambda n: chance.choice((0, n, n // 2))]  # noqa: B023
        for keep in keeps:
            image = files.crash(keep)
            assert newest_whole(image, ROOT) >= 20, files.log[-3:]
            image.capacity = files.capacity
            save_all(image, ROOT, 40, keep=3)
            assert newest_whole(image, ROOT) == 40
            left = [name for name in image.listdir(ROOT) if step_of_temporary(name) is not None]
            assert not left
        stop += 1
    assert stop > 60
    assert any("room-1" in line for line in files.log)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_an_error_at_every_point_of_a_save_that_makes_room(number: int) -> None:
    def until_full(fail: int | None) -> CrashingFiles:
        files = disk(int(2.5 * ONE))
        for step in (10, 20):
            save_all(files, ROOT, step, keep=3)
        files.fail = {} if fail is None else {files.done + fail: number}
        try_save(files, ROOT, 30, keep=3)
        files.fail = {}
        return files

    count = until_full(None).done
    for at in range(count):
        files = until_full(at)
        assert newest_whole(files, ROOT) >= 20
        save_all(files, ROOT, 40, keep=3)
        assert newest_whole(files, ROOT) == 40


# --- ranks side by side, on a real disk ----------------------------------------------------------


class SmallDisk(Disk):
    """Full for whatever does not fit beside the checkpoints that are there."""

    def __init__(self, root: Path, checkpoints: int) -> None:
        self.root, self.checkpoints = root, checkpoints

    def create(self, path: str) -> OpenFile:
        is_big = path.endswith("safetensors")
        if is_big and len([*self.root.glob("step-*")]) >= self.checkpoints:
            raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT), path)
        return super().create(path)


def save_beside(
    files: Disk, root: Path, step: int, *, patience: float = 30.0
) -> dict[int, str | Exception]:
    """Three ranks, each in a thread of its own, as their writers are."""
    place = SaveFolder(str(root), step, f"{step:04x}")
    answers: dict[int, str | Exception] = {}

    def check() -> None:
        if not files.exists(place.temporary):
            raise SaveError("rank 0 gave up this save", place.temporary)

    def rank(number: int) -> str:
        order = request(str(root), step, rank=number, world=3)
        control = SaveControl(check_wanted=check if number else lambda: None)
        made = MadeRoom(files, place, order)
        room = AskedRoom(files, place, order, control) if number else made
        part = commit.write_part(
            files, place, number, content(number, step), stall=0.0, control=control, room=room
        )
        if number:
            commit.hand_over(files, place, part)
            return "written"
        return commit.commit(files, place, part, order, control, made)[0]

    def run(number: int) -> None:
        try:
            answers[number] = rank(number)
        except Exception as error:  # noqa: BLE001
            answers[number] = error
            if number == 0:
                commit.abandon(files, place)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(patience)
    return answers


def test_ranks_that_find_it_full_wait_for_rank_0_and_write_again(tmp_path: Path) -> None:
    for step in (10, 20):
        save_all(DISK, str(tmp_path), step, world=3, keep=9)
    answers = save_beside(SmallDisk(tmp_path, 2), tmp_path, 30)
    assert answers == {
        0: str(tmp_path / "step-000000030"),
        1: "written",
        2: "written",
    }
    assert sorted(os.listdir(tmp_path)) == names(20, 30)
    assert newest_whole(DISK, str(tmp_path)) == 30


@pytest.mark.long
def test_without_a_second_whole_one_all_give_up(tmp_path: Path) -> None:
    save_all(DISK, str(tmp_path), 10, world=3, keep=9)
    answers = save_beside(SmallDisk(tmp_path, 1), tmp_path, 20)
    assert set(answers) == {0, 1, 2}
    assert all(isinstance(answer, Exception) for answer in answers.values())
    assert os.listdir(tmp_path) == names(10)


def test_one_that_is_being_read_is_passed_over(tmp_path: Path) -> None:
    first, *_ = (save_all(DISK, str(tmp_path), step, world=3, keep=9) for step in (10, 20, 30))
    with hold(first):
        answers = save_beside(SmallDisk(tmp_path, 3), tmp_path, 40)
    assert answers[0] == str(tmp_path / "step-000000040")
    assert sorted(os.listdir(tmp_path)) == names(10, 30, 40)


def test_a_rank_does_not_wait_for_ever_for_a_rank_0_that_is_gone(tmp_path: Path) -> None:
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    order = request(str(tmp_path), 10, rank=1)
    place = SaveFolder(str(tmp_path), 10, order.token)
    os.mkdir(place.temporary)
    control = SaveControl(clock=lambda: now[0], sleep=sleep)

    def full() -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(OSError, match="No space"):
        with_room(AskedRoom(DISK, place, order, control), full)
    assert order.patience < now[0] < order.patience + 5
    assert os.listdir(place.temporary) == []
