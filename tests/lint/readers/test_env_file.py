"""Files of settings and of hosts."""

from __future__ import annotations

import pytest

from tests.analysis.source.made_sources import env_file, hostfile, nccl_conf


@pytest.mark.parametrize(
    ("line", "value", "known"),
    [
        ("A=1", "1", True),
        ("export A=1", "1", True),
        ("A = 1", "1", True),
        ("A='x # y'", "x # y", True),
        ('A="x y"  ', "x y", True),
        ("A=1 # one", "1", True),
        ("A=a#b", "a#b", True),
        ("A=", "", True),
        ("A=$B", "$B", False),
        ("A='$B'", "$B", True),
        ("A=<iface>", "<iface>", False),
        ("A=1\r", "1", True),
    ],
)
def test_env_files_are_read_kindly(line: str, value: str, known: bool) -> None:
    (setting,) = env_file(f"# comment\n{line}\nno assignment\n").settings
    assert (setting.name, setting.value, setting.known) == ("A", value, known)
    assert (setting.place.line, setting.by) == (2, "env file")


def test_an_nccl_conf_is_read_as_nccl_does() -> None:
    source = nccl_conf("# NCCL_X=1\nNCCL_DEBUG=INFO\nNCCL_IB_HCA = mlx5\nexport NCCL_Y=1\n=2\n")
    assert [(setting.name, setting.value) for setting in source.settings] == [
        ("NCCL_DEBUG", "INFO"),
        ("NCCL_IB_HCA ", " mlx5"),
        ("export NCCL_Y", "1"),
    ]


def test_hostfiles_of_all_launchers() -> None:
    source = hostfile(
        "# DeepSpeed\nworker-0 slots=4\n  10.0.0.2 slots = 2 max_slots=8\nnode3:3  # MPICH\nnode4\n"
        "[::1]:2\n= nonsense\n\n"
    )
    assert [(host.name, host.slots, host.place.line) for host in source.hosts] == [
        ("worker-0", 4, 2),
        ("10.0.0.2", 2, 3),
        ("node3", 3, 4),
        ("node4", None, 5),
        ("[::1]", 2, 6),
    ]
