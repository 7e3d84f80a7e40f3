"""What a scene remembers of the questions that it was asked."""

from __future__ import annotations

import threading

import msgspec

from holdfast.analysis.collectives import waits
from holdfast.analysis.scene.scene import Scene
from tests.run.scenes import a_scene, held_up


def test_a_question_is_worked_out_once_for_each_scene() -> None:
    asked: list[Scene] = []

    def question(scene: Scene) -> int:
        asked.append(scene)
        return len(asked)

    first, second = a_scene(), a_scene()
    assert [first.memo(question), second.memo(question), first.memo(question)] == [1, 2, 1]
    later = msgspec.structs.replace(first, now=first.now + 1)
    assert later.memo(question) == 3, "a changed scene knows nothing of the one before"


def test_what_is_remembered_is_not_part_of_the_scene() -> None:
    asked, other = a_scene(), a_scene()
    asked.memo(lambda scene: scene.attempt)
    assert asked == other
    assert msgspec.json.encode(asked) == msgspec.json.encode(other)


def test_threads_that_ask_about_two_scenes_never_get_each_others_answer() -> None:
    scenes = [held_up({2: {}}), a_scene()]
    expected = [waits.analyse(held_up({2: {}})).roots, waits.analyse(a_scene()).roots]
    assert expected[0] != expected[1]
    wrong: list[int] = []

    def ask(which: int) -> None:
        for _ in range(300):
            fresh = msgspec.structs.replace(scenes[which])
            if waits.analyse(fresh).roots != expected[which]:
                wrong.append(which)

    threads = [threading.Thread(target=ask, args=(which,)) for which in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
