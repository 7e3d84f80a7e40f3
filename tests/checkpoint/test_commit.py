"""A save that is stopped anywhere, on a disk that forgets what it may: the one before stands."""

from __future__ import annotations

import errno
import random
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.analysis.checkpoints.manifest import RankPart, step_of_temporary
from holdfast.checkpoint import choose, commit
from holdfast.checkpoint.commit import MadeRoom, SaveControl, SaveError, SaveFolder
from holdfast.checkpoint.files import read
from holdfast.checkpoint.messages import SaveFailure
from tests.checkpoint.crashing_files import Crash, CrashingFiles, Keep
from tests.checkpoint.small_saves import (
    Clock,
    content,
    newest_whole,
    request,
    save,
    save_all,
    try_save,
)

ROOT = "/data/ckpts"
STEPS = (10, 20, 30, 40)


def disk(stop: int | None = None, fail: dict[int, int] | None = None) -> CrashingFiles:
    """Empty, but for the folder that the user's disk is mounted at."""
    files = CrashingFiles(fail=fail)
    files.make_folder("/data")
    files.fsync_folder("/")
    files.stop = stop
    return files


def run(files: CrashingFiles) -> int:
    """Saves until the machine stops; the last step that was reported as committed."""
    reported = 0
    try:
        for step in STEPS:
            for _ in save(files, ROOT, step):
                reported = step
    except Crash:
        pass
    return reported


def no_room(files: CrashingFiles) -> MadeRoom:
    """For saves that do not find the disk full."""
    return MadeRoom(files, SaveFolder(ROOT, 10, "a"), request(ROOT, 10))


def part_of(files: CrashingFiles, place: SaveFolder, rank: int, control: SaveControl) -> RankPart:
    return commit.write_part(
        files,
        place,
        rank,
        content(rank, place.step),
        stall=0.0,
        control=control,
        room=no_room(files),
    )


def operations() -> int:
    files = disk()
    assert run(files) == STEPS[-1]
    return files.done


COUNT = operations()


def check(stop: int, keep: Keep) -> None:
    files = disk(stop)
    reported = run(files)
    image = files.crash(keep)
    assert newest_whole(image, ROOT) >= reported, files.log[-5:]
    # The next attempt continues in this very folder, whatever is left in it.
    save_all(image, ROOT, 50)
    assert newest_whole(image, ROOT) == 50
    left = [name for name in image.listdir(ROOT) if step_of_temporary(name) is not None]
    assert not left, "what the crash left behind is cleared away"


def put_notes(files: CrashingFiles, step: str) -> None:
    """A user's own file in a checkpoint, safe on the disk."""
    file = files.create(f"{step}/notes.txt")
    file.write(memoryview(b"my best run"))
    file.fsync()
    files.fsync_folder(step)


def notes_in(files: CrashingFiles) -> list[bytes]:
    return [
        read(files, f"{ROOT}/{name}/notes.txt")
        for name in files.listdir(ROOT)
        if "notes.txt" in files.listdir(f"{ROOT}/{name}")
    ]


def test_no_crash_in_a_removal_loses_what_a_user_put_there() -> None:
    stop = 0
    while True:
        files = disk()
        path = save_all(files, ROOT, 10)
        put_notes(files, path)
        save_all(files, ROOT, 20)
        files.stop = files.done + stop
        try:
            save_all(files, ROOT, 30, keep=1)
        except Crash:
            pass
        else:
            break
        for keep in (nothing, everything, by_chance(random.Random(stop))):
            image = files.crash(keep)
            assert newest_whole(image, ROOT) >= 20
            save_all(image, ROOT, 40, keep=1)
            assert notes_in(image) == [b"my best run"], files.log[-3:]
        stop += 1
    assert stop > 40
    files.stop = None
    assert notes_in(files) == [b"my best run"]


def nothing(_: int) -> int:
    return 0


def everything(size: int) -> int:
    return size


def by_chance(chance: random.Random) -> Keep:
    return lambda size: chance.choice((0, size, size // 2))


@pytest.mark.parametrize("stop", range(2, COUNT + 3))
def test_a_crash_after_every_single_operation(stop: int) -> None:
    check(stop, nothing)
    check(stop, everything)
    for seed in range(6):
        check(stop, by_chance(random.Random(f"{stop} {seed}")))


@given(stop=st.integers(2, COUNT + 2), data=st.data())
def test_whatever_subset_of_the_unsynced_survives(stop: int, data: st.DataObject) -> None:
    check(stop, lambda size: data.draw(st.integers(0, size)))


def test_the_disk_of_these_tests_does_forget() -> None:
    """Else they would prove nothing: the same save without its syncs is lost."""

    class Unsynced(CrashingFiles):
        def fsync_folder(self, path: str) -> None:
            pass

    files = Unsynced()
    files.make_folder("/data")
    save_all(files, ROOT, 10)
    assert newest_whole(files, ROOT) == 10
    assert newest_whole(files.crash(nothing), ROOT) == 0


def test_torn_bytes_under_a_good_name_are_not_chosen() -> None:
    files = disk()
    save_all(files, ROOT, 10)
    path = save_all(files, ROOT, 20)
    file = files._file(f"{path}/rank-1.safetensors")
    file.data[7] ^= 1
    assert newest_whole(files, ROOT) == 10


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EACCES])
def test_an_error_at_any_operation_costs_one_save_at_most(number: int) -> None:
    for at in range(2, COUNT):
        files = disk(fail={at: number})
        done = [step for step in STEPS if try_save(files, ROOT, step)]
        assert len(done) >= len(STEPS) - 1, files.log[at]
        assert newest_whole(files, ROOT) >= done[-1]
        assert newest_whole(files.crash(nothing), ROOT) >= done[-1], "also after a power cut"
        save_all(files, ROOT, 50)
        left = [name for name in files.listdir(ROOT) if step_of_temporary(name) is not None]
        assert not left, files.log[at]


def test_a_full_disk_is_swept_before_the_save_fails() -> None:
    files = disk()
    save_all(files, ROOT, 10)
    dead = SaveFolder(ROOT, 15, "dead")
    part_of(files, dead, 0, Clock().control())
    files.fail = {files.done + 4: errno.ENOSPC}
    assert save_all(files, ROOT, 20) == f"{ROOT}/step-000000020"
    assert f"remove {dead.temporary}/rank-0.json" in files.log
    assert files.listdir(ROOT) == ["step-000000010", "step-000000020"]


def test_the_manifest_tells_all_of_it() -> None:
    files = disk()
    path = save_all(files, ROOT, 10, world=3)
    [candidate] = choose.candidates(ROOT, files)
    manifest = candidate.manifest
    assert (candidate.path, candidate.step, candidate.problem) == (path, 10, None)
    assert manifest
    assert (manifest.world_size, manifest.epoch, manifest.stall) == (3, 1, 0.2)
    assert manifest.config == {"lr": "0.1"}
    assert [entry.name for entry in manifest.files] == [
        f"rank-{rank}.{end}" for rank in range(3) for end in ("safetensors", "json")
    ]
    assert sorted([*files.listdir(path), ""]) == sorted(
        ["", "manifest.json", *(entry.name for entry in manifest.files)]
    )


def test_ranks_that_write_no_part_are_named() -> None:
    files, clock = disk(), Clock()
    place = SaveFolder(ROOT, 10, "a")
    own = part_of(files, place, 0, clock.control())
    asked = request(ROOT, 10, world=8)
    for rank in (1, 2, 3):
        commit.hand_over(files, place, RankPart(rank=rank, files=(), stall=0.0, seconds=0.0))
    with pytest.raises(SaveError, match=r"ranks 4-7 did not write their parts.*is /data/ckpts on"):
        commit.commit(files, place, own, asked, clock.control(), no_room(files))
    assert asked.patience <= clock.now < asked.patience + 1


def test_patience_starts_again_with_every_byte_that_comes() -> None:
    files, clock = disk(), Clock()
    place = SaveFolder(ROOT, 10, "a")
    control = clock.control()
    own = part_of(files, place, 0, control)
    slow, written = files.create(f"{place.temporary}/rank-1.safetensors"), count(step=4)

    def sleep(seconds: float) -> None:
        before = clock.now // 100
        clock.sleep(seconds)
        if clock.now // 100 > before and clock.now < 900:
            slow.write(memoryview(b"more"), next(written))
        elif clock.now >= 900 and not files.exists(f"{place.temporary}/rank-1.part.json"):
            part = part_of(files, place, 1, control)
            commit.hand_over(files, place, part)

    control = commit.SaveControl(clock=lambda: clock.now, sleep=sleep)
    commit.commit(files, place, own, request(ROOT, 10), control, no_room(files))
    assert newest_whole(files, ROOT) == 10


def test_a_failed_rank_is_noticed_at_once() -> None:
    files, clock = disk(), Clock()
    place = SaveFolder(ROOT, 10, "a")
    own = part_of(files, place, 0, clock.control())
    failed = SaveFailure(step=10, errno=errno.ENOSPC, what="No space left on device", where="/x")
    commit.leave_failure(files, place, 1, ["rank-1.json"], failed)
    with pytest.raises(SaveError, match="rank 1: No space left on device") as caught:
        commit.commit(files, place, own, request(ROOT, 10), clock.control(), no_room(files))
    assert (caught.value.number, caught.value.where) == (errno.ENOSPC, "/x")
    assert clock.now == 0


def test_rank_0_does_not_believe_a_size_it_cannot_see() -> None:
    files, clock = disk(), Clock()
    place = SaveFolder(ROOT, 10, "a")
    parts = [part_of(files, place, rank, clock.control()) for rank in (0, 1)]
    commit.hand_over(files, place, parts[1])
    files._file(f"{place.temporary}/rank-1.json").data += b"!"
    with pytest.raises(SaveError, match="rank 1 wrote 12 bytes, rank 0 sees 13"):
        commit.commit(files, place, parts[0], request(ROOT, 10), clock.control(), no_room(files))


def test_a_step_reached_again_never_writes_over_the_first() -> None:
    files = disk()
    save_all(files, ROOT, 10)
    place, control = SaveFolder(ROOT, 10, "b"), Clock().control()
    own = part_of(files, place, 0, control)
    path, _ = commit.commit(files, place, own, request(ROOT, 10, world=1), control, no_room(files))
    assert path == f"{ROOT}/step-000000010.2"
    assert [found.path for found in choose.candidates(ROOT, files)] == [
        path,
        f"{ROOT}/step-000000010",
    ]
    assert commit.retain(files, ROOT, keep=3, keep_every=None, newest=path, token="b") == ""
    assert files.listdir(ROOT) == ["step-000000010.2"]
    assert read(files, f"{path}/rank-0.json") == b'{"step": 10}'
