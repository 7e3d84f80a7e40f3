"""Which value of a variable wins, and that nothing is trimmed on the way."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from holdfast.analysis.machine import Setting
from holdfast.check.readers.settings import parse, read_overridden, read_settings
from tests.faults.machines import a_plan

HOME = pwd.getpwuid(os.getuid()).pw_dir.lstrip("/")


def in_force(root: Path, **environment: str) -> dict[str, Setting]:
    plan = a_plan(environment={"PATH": "/usr/bin", **environment})
    found = read_settings(plan, root=str(root))
    assert len({s.name for s in found}) == len(found)
    return {s.name: s for s in found}


def plant(root: Path, *, home: str = "", etc: str = "") -> None:
    for name, text in ((f"{HOME}/.nccl.conf", home), ("etc/nccl.conf", etc)):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_the_environment_beats_home_which_beats_etc(tmp_path: Path) -> None:
    plant(
        tmp_path,
        home="NCCL_DEBUG=WARN\nNCCL_ALGO=Ring\n",
        etc="NCCL_DEBUG=INFO\nNCCL_ALGO=Tree\nNCCL_PROTO=Simple\n",
    )
    found = in_force(tmp_path, NCCL_DEBUG="TRACE")
    assert {name: (s.value, s.origin) for name, s in found.items()} == {
        "NCCL_DEBUG": ("TRACE", "environment"),
        "NCCL_ALGO": ("Ring", f"{tmp_path}/{HOME}/.nccl.conf:2"),
        "NCCL_PROTO": ("Simple", f"{tmp_path}/etc/nccl.conf:3"),
    }


def test_what_loses_is_known_too(tmp_path: Path) -> None:
    plant(tmp_path, home="NCCL_DEBUG=WARN\n", etc="NCCL_DEBUG=INFO\nNCCL_PROTO=LL\n")
    plan = a_plan(environment={"NCCL_DEBUG": "TRACE"})
    lost = read_overridden(plan, root=str(tmp_path))
    assert [(s.value, s.origin.rpartition("/")[2]) for s in lost] == [
        ("WARN", ".nccl.conf:1"),
        ("INFO", "nccl.conf:1"),
    ]


def test_every_family_of_the_table_is_seen(tmp_path: Path) -> None:
    names = {"SLURM_NEW_THING": "1", "UCX_TLS": "rc", "OMPI_COMM_WORLD_RANK": "0", "PBS_JOBID": "7"}
    assert set(in_force(tmp_path, **names, EDITOR="vi")) == set(names)


def test_a_named_file_stands_in_for_the_one_at_home(tmp_path: Path) -> None:
    plant(tmp_path, home="NCCL_ALGO=Ring\n", etc="NCCL_PROTO=LL\n")
    named = tmp_path / "job.conf"
    named.write_text("NCCL_BUFFSIZE=1\n")
    found = in_force(tmp_path, NCCL_CONF_FILE=str(named))
    assert set(found) == {"NCCL_CONF_FILE", "NCCL_BUFFSIZE", "NCCL_PROTO"}
    assert set(in_force(tmp_path, NCCL_CONF_FILE="/none")) == {"NCCL_CONF_FILE", "NCCL_PROTO"}
    assert "NCCL_ALGO" in in_force(tmp_path, NCCL_CONF_FILE="")


def test_lines_are_taken_as_nccl_takes_them() -> None:
    text = b"# NCCL_A=1\nNCCL_DEBUG = INFO\nNCCL_B\n=x\nNCCL_C=1=2\nNCCL_C=3\r\n NCCL_D=4\n"
    assert [(s.name, s.value, s.origin) for s in parse(text, "f")] == [
        ("NCCL_DEBUG ", " INFO", "f:2"),
        ("NCCL_C", "1=2", "f:5"),
        ("NCCL_C", "3", "f:6"),
        (" NCCL_D", "4", "f:7"),
    ]


def test_a_mistyped_name_from_a_file_is_kept_as_it_is(tmp_path: Path) -> None:
    plant(tmp_path, etc="NCCL_DEBUG = INFO\nPATH=/bin\n")
    assert set(in_force(tmp_path)) == {"NCCL_DEBUG "}


def test_an_empty_value_in_the_environment_counts_as_set(tmp_path: Path) -> None:
    plant(tmp_path, etc="NCCL_DEBUG=INFO\n")
    assert in_force(tmp_path, NCCL_DEBUG="")["NCCL_DEBUG"].value == ""


def test_bytes_that_are_no_text_still_travel(tmp_path: Path) -> None:
    found = in_force(tmp_path, NCCL_DEBUG_FILE="/tmp/\udcff.log")["NCCL_DEBUG_FILE"]
    assert msgspec.json.decode(msgspec.json.encode(found), type=Setting) == found


def test_only_relevant_variables_are_given_and_no_secret(tmp_path: Path) -> None:
    found = in_force(
        tmp_path,
        WANDB_API_KEY="abc",
        HOROVOD_SECRET_KEY="hush",
        RANK="0",
        SLURM_JOB_ID="7",
        OMP_NUM_THREADS="4",
        RANKING="1",
    )
    assert set(found) == {"HOROVOD_SECRET_KEY", "RANK", "SLURM_JOB_ID", "OMP_NUM_THREADS"}
    assert "hush" not in found["HOROVOD_SECRET_KEY"].value
    assert found["SLURM_JOB_ID"].value == "7"


@given(st.binary())
def test_any_file_is_read_without_a_stumble(content: bytes) -> None:
    for setting in parse(content, "f"):
        assert setting.name
        assert "\n" not in setting.name + setting.value


NAMES = st.text(st.characters(exclude_characters="=\n\r\0#", exclude_categories=["Cs"]), min_size=1)
VALUES = st.text(st.characters(exclude_characters="\n\r\0", exclude_categories=["Cs"]))


@given(st.dictionaries(NAMES.filter(lambda n: len(n) < 200), VALUES.filter(lambda v: len(v) < 200)))
def test_what_was_written_is_read_back(values: dict[str, str]) -> None:
    text = "".join(f"{name}={value}\n" for name, value in values.items())
    assert {s.name: s.value for s in parse(text.encode(), "f")} == values
