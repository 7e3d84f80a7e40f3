"""Which ranks belong to a group, where the recorder tells: NCCL's does."""

from __future__ import annotations

import msgspec
import pytest

from holdfast.analysis.collectives.recorder import parse
from holdfast.analysis.collectives.waits import analyse
from holdfast.analysis.scene.scene import Recorder, Scene
from tests.analysis.collectives.meshes import Mesh, Op, Play, again
from tests.run.scenes import changed

FSDP_TP = [Op("dp", 16), Op("tp", 8), Op("dp", 16, ahead=True), Op("tp", 8), Op("dp", 32)]


def with_members(scene: Scene, mesh: Mesh, names: dict[str, str]) -> Scene:
    """As NCCL has it: the members of each group are told, under these names."""
    for rank in mesh.ranks:
        held = scene.rank(rank).recorder
        assert isinstance(held, Recorder)
        axes = {mesh.group(rank, axis): axis for axis in ("world", "dp", "tp")}
        told = Recorder(
            collectives=tuple(
                msgspec.structs.replace(c, group=names[axes[c.group]]) for c in held.collectives
            ),
            entered={names[axes[group]]: n for group, n in held.entered.items()},
            finished={names[axes[group]]: n for group, n in held.finished.items()},
            members={names[axis]: tuple(mesh.members(rank, axis)) for axis in axes.values()},
        )
        scene = changed(scene, rank, recorder=told)
    return scene


@pytest.mark.parametrize("culprit", range(4))
def test_one_name_for_several_groups_is_seen_through(culprit: int) -> None:
    """Older torch calls all parts of a split group alike."""
    mesh = Mesh(2, 2)
    play = Play(mesh=mesh, program=again(FSDP_TP, 2), step=5, culprit=culprit, stops_at=6)
    scene = with_members(play.scene(), mesh, {"world": "0", "dp": "1", "tp": "2"})
    seen = analyse(scene)
    assert (seen.roots, seen.mismatch) == ((culprit,), None)


def test_a_member_that_never_came_to_its_group_is_missed_where_members_are_told() -> None:
    mesh = Mesh(2, 2)
    play = Play(mesh=mesh, program=again(FSDP_TP, 2), step=5, culprit=3, stops_at=0)
    assert analyse(play.scene()).roots == ()
    told = with_members(play.scene(), mesh, {"world": "0", "dp": "1", "tp": "2"})
    assert analyse(told).roots == (3,)


def test_members_are_read_from_the_recorder_of_nccl_and_missing_in_that_of_gloo() -> None:
    nccl = b'{"pg_config": {"1": {"name": "1", "desc": "mesh_tp", "ranks": "[0, 12]"}}}'
    gloo = b'{"pg_config": {"": {"name": "", "desc": "", "ranks": "[]"}}}'
    assert parse(nccl).members == {"1": (0, 12)}
    assert parse(gloo).members == {}
