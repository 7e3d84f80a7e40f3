"""Host lists as Slurm writes them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import ConfigError
from holdfast.nodes.reach.host_list import MOST_NAMES, expand


def expanded(text: str) -> list[str]:
    return expand(text, source="SLURM_JOB_NODELIST")


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", []),
        ("a", ["a"]),
        ("a,b", ["a", "b"]),
        ("a b\n", ["a", "b"]),
        (",a,,b,", ["a", "b"]),
        ("node[001-003,7]", ["node001", "node002", "node003", "node7"]),
        ("n[8-11]", ["n8", "n9", "n10", "n11"]),
        ("n[08-11]", ["n08", "n09", "n10", "n11"]),
        ("n[098-101]", ["n098", "n099", "n100", "n101"]),
        ("gpu-[1-2]-[a,b]", ["gpu-1-a", "gpu-1-b", "gpu-2-a", "gpu-2-b"]),
        ("a[1-2][3-4]", ["a13", "a14", "a23", "a24"]),
        ("n[1-2]-ib,m", ["n1-ib", "n2-ib", "m"]),
        ("n[1,1],n1", ["n1", "n1", "n1"]),
        ("n[5]", ["n5"]),
        ("ip-10-0-0-[7,9].ec2.internal", ["ip-10-0-0-7.ec2.internal", "ip-10-0-0-9.ec2.internal"]),
    ],
)
def test_lists_are_expanded_in_order(text: str, names: list[str]) -> None:
    assert expanded(text) == names


@pytest.mark.parametrize(
    ("text", "saying"),
    [
        ("n[1-2", "not closed"),
        ("n1-2]", "do not match"),
        ("n[[1-2]]", "do not match"),
        ("n[]", "empty brackets"),
        ("n[3-1]", "runs backwards"),
        ("n[1-]", "not a range"),
        ("n[1,]", "not a range"),
        ("n[1-2-3]", "not a range"),
        ("n[ 1-2]", "not a range"),
        ("a;reboot", "not a host name"),
        ("a$(x)", "not a host name"),
        ("ü", "not a host name"),
        ("n[٣-٤]", "not a range"),
    ],
)
def test_what_is_no_list_is_refused(text: str, saying: str) -> None:
    with pytest.raises(ConfigError, match=saying) as refused:
        expanded(text)
    assert refused.value.sentence.startswith("SLURM_JOB_NODELIST")


@pytest.mark.parametrize(
    "text",
    [
        "n[1-1000000000]",
        "n[1-999999999999999999]",
        "n[1-1000]-[1-1000]",
        "n" + "[0-9]" * 5,
        "n[1-65536][1-65536]," * 1000,
        "n[1-65536],m",
        "n[1-65536,1]",
        "n[1-65536][1-2]",
        "a," * MOST_NAMES + "a",
        "a" * (1 << 21),
    ],
)
def test_a_forged_list_cannot_grow_without_limit(text: str) -> None:
    with pytest.raises(ConfigError, match=r"the limit is|more than"):
        expanded(text)


def test_the_limit_itself_is_allowed() -> None:
    assert len(expanded(f"n[1-{MOST_NAMES}]")) == MOST_NAMES


@given(st.text(alphabet="an0123456789[]-,. _;", max_size=30))
def test_any_text_is_expanded_or_refused(text: str) -> None:
    try:
        names = expanded(text)
    except ConfigError:
        return
    assert len(names) <= MOST_NAMES
    assert not any(set(name) & set("[], ;") for name in names)
