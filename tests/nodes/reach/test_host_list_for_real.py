"""Our expansion of host lists beside Slurm's own."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import hypothesis
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.nodes.reach.host_list import expand

numbers = st.tuples(st.integers(0, 120), st.integers(0, 12), st.integers(1, 5))
ranges = numbers.map(lambda n: f"{n[0]:0{n[2]}d}-{n[0] + n[1]:0{n[2]}d}")
singles = numbers.map(lambda n: f"{n[0]:0{n[2]}d}")
brackets = st.lists(st.one_of(ranges, singles), min_size=1, max_size=3).map(
    lambda parts: f"[{','.join(parts)}]"
)
plain = st.from_regex(r"[a-z][a-z0-9]{0,3}-?", fullmatch=True)
items = st.one_of(
    st.from_regex(r"[a-z][a-z0-9-]{0,6}[a-z0-9]", fullmatch=True),
    st.lists(st.tuples(plain, brackets), min_size=1, max_size=2).map(
        lambda parts: "".join(text + bracket for text, bracket in parts)
    ),
)


@pytest.mark.lab
def test_slurm_itself_expands_to_the_same_names(tmp_path: Path) -> None:
    if not shutil.which("scontrol"):
        pytest.skip("Slurm is not installed")
    config = tmp_path / "slurm.conf"
    config.write_text("ClusterName=lab\nSlurmctldHost=localhost\nNodeName=na\n")

    @settings(max_examples=hypothesis.settings().max_examples // 5)
    @given(st.lists(st.lists(items, min_size=1, max_size=4).map(",".join), min_size=8, max_size=8))
    def same(lists: list[str]) -> None:
        script = "".join(f'scontrol show hostnames "{text}" && echo; ' for text in lists)
        answer = subprocess.run(
            ["sh", "-c", script],
            env={"SLURM_CONF": str(config), "PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        theirs = [part.split("\n") for part in answer.stdout.split("\n\n")[:-1]]
        assert [expand(text, source="a list") for text in lists] == theirs, answer.stderr

    same()
