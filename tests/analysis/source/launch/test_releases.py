"""Versions that exist, and specifiers that pip can read."""

from __future__ import annotations

import pytest

from holdfast.analysis.source.launch import releases


@pytest.mark.parametrize(
    ("operator", "version"),
    [
        *(("==", v) for v in ("2.4", "2.4.0+cu121", "2.4.*", "1!2.0", "2.4.0a0", "v2.4", "2.4rc1")),
        *(("==", v) for v in ("2.4.0.dev20240601", "2.4.post1", "2.4-1")),
        *((op, "2.4.0") for op in (">=", "<", "<=", ">", "~=", "!=", "===")),
        ("===", "anything*at-all"),
    ],
)
def test_what_pep_440_allows(operator: str, version: str) -> None:
    assert releases.refused(operator, version) == ""


@pytest.mark.parametrize(
    ("operator", "version"),
    [
        *(
            ("==", v)
            for v in ("2.*.0", "*", "2.4.0.dev*", "2.4.0+cu*", "2.4.dev1.*", "2.4.0.cu121")
        ),
        *(
            ("==", v)
            for v in ("2.4.0+cu121.*", "2.4.0a1.*", "2.4.post1.*", "latest", "2.4.x", "2.4.0.cu121")
        ),
        *((op, "2.4.*") for op in (">=", "<", "<=", ">", "~=")),
        (">=", "2.4.0+cu121"),
        ("~=", "2"),
    ],
)
def test_what_pep_440_refuses(operator: str, version: str) -> None:
    assert releases.refused(operator, version)


def test_a_release_of_each_minor_version_is_never_called_made_up() -> None:
    for table in (releases.nccl(), releases.torch()):
        for (major, minor), patches in table.items():
            for patch in patches:
                assert releases.never_released(table, f"{major}.{minor}.{patch}") == ""
            assert releases.never_released(table, f"{major}.{minor}.{max(patches) + 1}")
    assert releases.never_released(releases.nccl(), "2.99.1") == ""


def test_a_package_that_is_not_in_the_table_has_no_releases() -> None:
    assert releases.of_package("numpy") == {}
    assert releases.of_package("nvidia-nccl-cu12") == releases.nccl()
