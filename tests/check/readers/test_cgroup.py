"""cgroup v1 for real; v2, hybrid and containers from trees as those machines have them."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.analysis.machine import Cgroup
from holdfast.check.readers import cgroup
from holdfast.system import cgroup_files, cgroup_tree
from tests.check.readers.trees import a_cgroup, elsewhere, join, plant
from tests.faults.machines import a_plan

MIB = 1 << 20
V2_MOUNT = "31 23 0:28 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
PRESSURE = "some avg10=9.00 avg60=12.50 avg300=1.00 total=5\nfull avg10=0 avg60=7.00 avg300=0\n"


def v2(path: str, files: dict[str, str], *, mounted: str = V2_MOUNT) -> dict[str, str]:
    tree = {f"/sys/fs/cgroup/{name}": text for name, text in files.items()}
    return {"/proc/self/cgroup": f"0::{path}\n", "/proc/self/mountinfo": mounted, **tree}


def test_a_container_with_its_own_cgroup_namespace(tmp_path: Path) -> None:
    files = {
        "cpu.max": "150000 100000\n",
        "cpu.stat": "usage_usec 900\nnr_periods 200\nnr_throttled 50\n",
        "memory.max": f"{512 * MIB}\n",
        "memory.current": f"{300 * MIB}\n",
        "memory.stat": f"anon {100 * MIB}\nactive_file {80 * MIB}\ninactive_file {100 * MIB}\n",
        "memory.events": "low 0\nhigh 0\nmax 9\noom 4\noom_kill 3\n",
        "memory.pressure": PRESSURE,
        "cpu.pressure": PRESSURE.replace("12.50", "33.00"),
    }
    assert cgroup.read_cgroup(a_plan(), plant(tmp_path, v2("/", files))) == Cgroup(
        version=2,
        path="/",
        cpu_quota=1.5,
        throttled_share=0.25,
        memory_limit=512 * MIB,
        memory_used=120 * MIB,
        oom_kills=3,
        memory_pressure=12.5,
        cpu_pressure=33.0,
    )


def test_the_tightest_ancestor_counts(tmp_path: Path) -> None:
    path = "/user.slice/user-1000.slice/session-3.scope"
    files = {
        f"{path}/cpu.max": "max 100000\n",
        f"{path}/memory.max": f"{400 * MIB}\n",
        f"{path}/memory.current": f"{100 * MIB}\n",
        f"{path}/pids.max": "max\n",
        f"{path}/pids.current": "7\n",
        "/user.slice/user-1000.slice/cpu.max": "400000 100000\n",
        "/user.slice/user-1000.slice/cpu.stat": "nr_periods 0\nnr_throttled 0\n",
        # a larger limit, but nearly full: this one will be met first
        "/user.slice/user-1000.slice/memory.max": f"{900 * MIB}\n",
        "/user.slice/user-1000.slice/memory.current": f"{800 * MIB}\n",
        "/user.slice/user-1000.slice/pids.max": "1000\n",
        "/user.slice/user-1000.slice/pids.current": "950\n",
        "/user.slice/cpu.max": "800000 100000\n",
        "/user.slice/memory.max": "max\n",
    }
    root = plant(tmp_path, v2(path, files))
    found = cgroup.read_cgroup(a_plan(), root)
    assert found.path == path
    assert (found.cpu_quota, found.throttled_share) == (4.0, 0.0)
    assert (found.memory_limit, found.memory_used) == (900 * MIB, 800 * MIB)
    assert cgroup.process_use(root) == (1000, 950)


def test_a_machine_without_limits(tmp_path: Path) -> None:
    """The root cgroup has none of the files; the machine's own pressure stands in."""
    files = {**v2("/", {"cgroup.controllers": "cpu memory pids"}), "/proc/pressure/cpu": PRESSURE}
    found = cgroup.read_cgroup(a_plan(), plant(tmp_path, files))
    assert (found.cpu_quota, found.throttled_share) == (None, None)
    assert (found.memory_limit, found.memory_used, found.oom_kills) == (None, None, None)
    assert (found.memory_pressure, found.cpu_pressure) == (None, 12.5)


HYBRID = """\
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
"""


def test_hybrid_takes_limits_from_v1_and_pressure_from_v2(tmp_path: Path) -> None:
    files = {
        "/proc/self/cgroup": "5:memory:/job/a\n2:cpu,cpuacct:/job\n0::/job.scope\n",
        "/proc/self/mountinfo": HYBRID,
        "/sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us": "50000\n",
        "/sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us": "100000\n",
        "/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "-1\n",
        "/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
        "/sys/fs/cgroup/memory/job/a/memory.limit_in_bytes": "9223372036854771712\n",
        "/sys/fs/cgroup/memory/job/a/memory.usage_in_bytes": f"{10 * MIB}\n",
        "/sys/fs/cgroup/memory/job/a/memory.stat": f"total_inactive_file {4 * MIB}\n",
        "/sys/fs/cgroup/memory/job/a/memory.oom_control": "under_oom 0\noom_kill 2\n",
        "/sys/fs/cgroup/unified/job.scope/memory.pressure": PRESSURE,
        "/proc/pressure/memory": PRESSURE.replace("12.50", "99.00"),
    }
    assert cgroup.read_cgroup(a_plan(), plant(tmp_path, files)) == Cgroup(
        version=1,
        path="/job/a",
        cpu_quota=0.5,
        throttled_share=0.0,
        memory_limit=None,
        memory_used=6 * MIB,
        oom_kills=2,
        memory_pressure=12.5,
        cpu_pressure=None,
    )


def test_a_v1_container_sees_only_its_own_part_of_the_tree(tmp_path: Path) -> None:
    """Docker mounts the container's cgroup at the mount point; the pod's limit is above it."""
    own = "/kubepods/pod1/c1"
    files = {
        "/proc/self/cgroup": f"4:memory:{own}\n",
        "/proc/self/mountinfo": f"9 8 0:7 {own} /sys/fs/cgroup/memory ro - cgroup c memory\n",
        "/sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
        "/sys/fs/cgroup/memory/memory.usage_in_bytes": f"{MIB}\n",
        "/sys/fs/cgroup/memory/memory.stat": f"hierarchical_memory_limit {64 * MIB}\n",
    }
    found = cgroup.read_cgroup(a_plan(), plant(tmp_path, files))
    assert (found.memory_limit, found.memory_used) == (64 * MIB, MIB)


def test_a_cgroup_that_is_not_visible_is_said_so(tmp_path: Path) -> None:
    elsewhere_mounted = V2_MOUNT.replace(" / /sys", " /other /sys")
    root = plant(tmp_path, v2("/mine", {"cpu.max": "max"}, mounted=elsewhere_mounted))
    with pytest.raises(LookupError, match="not visible here"):
        cgroup.read_cgroup(a_plan(), root)


def test_no_cgroup_at_all(tmp_path: Path) -> None:
    root = plant(tmp_path, {"/proc/self/cgroup": "", "/proc/self/mountinfo": ""})
    with pytest.raises(LookupError, match="belongs to no cgroup"):
        cgroup.read_cgroup(a_plan(), root)


def test_a_limit_that_cannot_be_read_is_not_no_limit(tmp_path: Path) -> None:
    root = plant(tmp_path, v2("/", {"memory.max/odd": ""}))
    with pytest.raises(OSError, match=r"memory\.max"):
        cgroup.read_cgroup(a_plan(), root)


# --- v1 for real -------------------------------------------------------------------------------


@pytest.mark.lab
def test_a_real_cpu_quota_and_how_often_it_ran_out() -> None:
    with a_cgroup("cpu") as outer:
        inner = outer / "inner"
        inner.mkdir()
        (outer / "cpu.cfs_period_us").write_text("20000")
        (outer / "cpu.cfs_quota_us").write_text("5000")

        def busy_inside() -> Cgroup:
            join(inner)
            end = time.monotonic() + 20
            while not (found := cgroup.read_cgroup(a_plan())).throttled_share:
                assert time.monotonic() < end, "never held back"
            return found

        found = elsewhere(busy_inside, Cgroup)
    assert found.cpu_quota == 0.25
    assert found.throttled_share is not None
    assert 0 < found.throttled_share <= 1


@pytest.mark.lab
def test_a_real_memory_limit_counts_no_page_cache(tmp_path: Path) -> None:
    written = 128 * MIB  # more than the pages a child of this process may touch by itself
    with a_cgroup("memory") as outer:
        inner = outer / "inner"
        inner.mkdir()
        (outer / "memory.limit_in_bytes").write_text(str(256 * MIB))

        def writing_inside() -> tuple[Cgroup, int, int]:
            join(inner)
            (tmp_path / "data").write_bytes(bytes(written))
            counts = cgroup_files.table((inner / "memory.stat").read_text())
            return cgroup.read_cgroup(a_plan()), counts["total_cache"], counts["total_shmem"]

        found, cache, shared = elsewhere(writing_inside, tuple[Cgroup, int, int])
    if shared >= written:
        pytest.skip("the temporary folder is in memory")
    assert cache >= written
    assert found.version == 1
    assert found.path.endswith("/inner")
    assert found.memory_limit == 256 * MIB
    assert found.memory_used is not None
    assert found.memory_used < written
    assert found.oom_kills == 0


# --- parsers -----------------------------------------------------------------------------------


@given(st.text())
def test_whatever_a_file_holds_the_answers_come_from_it(text: str) -> None:
    assert all(name in text for name in cgroup_files.table(text))
    number = cgroup_files.number(text)
    assert number is None or number == int(text)
    assert cgroup_files.some(text, "avg60") is None or "avg60=" in text
    assert all(path in text for path in cgroup_tree.memberships(text).values())
    assert not cgroup_tree.mounts(text) or "cgroup" in text


NAME = st.text(st.characters(categories=["L", "N"], include_characters="/_-.:"), min_size=1)


@given(st.lists(st.sampled_from(["cpu", "memory", "pids"]), unique=True, min_size=1), NAME)
def test_memberships_are_read_back(controllers: list[str], path: str) -> None:
    text = f"3:{','.join(controllers)}:{path}\n0::{path}\n"
    assert cgroup_tree.memberships(text) == dict.fromkeys([*controllers, ""], path)
