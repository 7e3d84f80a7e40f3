"""All that is known of one variable."""

from __future__ import annotations

import pytest

from holdfast.analysis import machine as f
from holdfast.analysis import variables
from holdfast.analysis.variables.status import Effect
from holdfast.env import setting_status, variable
from holdfast.view import env
from tests.env.made_jobs import a_job
from tests.faults.machines import a_machine


def test_a_known_one() -> None:
    job = a_job(NCCL_IB_TIMEOUT="22")
    found = variable.one("NCCL_IB_TIMEOUT", job, setting_status.judge(job))
    assert found.row is not None
    assert found.row.default == "20"
    assert found.version == "NCCL 2.32.3"
    assert found.now is not None
    assert found.now.verdict is Effect.IN_FORCE
    assert found.near == ()


def test_older_names_and_what_bears_on_it() -> None:
    found = variable.one("TORCH_NCCL_BLOCKING_WAIT", a_job(), ())
    assert found.spellings == ("NCCL_BLOCKING_WAIT",)
    assert [other for other, _ in found.bears_on] == ["TORCH_NCCL_ASYNC_ERROR_HANDLING"]


def test_an_unknown_one_gets_the_nearest_names() -> None:
    assert "NCCL_SOCKET_IFNAME" in variable.one("NCCL_SOKET_IFNAME", a_job(), ()).near
    assert "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC" in variable.one("heartbeat", a_job(), ()).near


def test_a_family() -> None:
    names = [row.name for row in variable.family("TORCH_FR_*")]
    assert "TORCH_FR_BUFFER_SIZE" in names
    assert all(name.startswith("TORCH_FR_") for name in names)
    assert variable.family("NO_SUCH_*") == ()


def test_absence_is_reported_only_where_it_proves_something() -> None:
    def searched(*prefixes: str) -> tuple[str, ...]:
        search = f.VariableSearch(
            searched=("libnccl.so.2 (NCCL 2.29.7)",), prefixes=prefixes, found={"NCCL_TIMEOUT": ()}
        )
        job = a_job(machine=a_machine(variable_search=search))
        return variable.one("NCCL_TIMEOUT", job, ()).searched

    assert searched("NCCL_") == ("libnccl.so.2 (NCCL 2.29.7)",)
    assert searched() == ()


def test_pairs_name_variables_that_exist() -> None:
    for first, second, how in variable.CONFLICTS:
        assert variables.lookup(first), first
        assert variables.lookup(second), second
        assert how


@pytest.mark.parametrize("width", [60, 80, 110])
def test_every_page_fits(width: int) -> None:
    job = a_job()
    for row in variables.everything().values():
        page = env.one(variable.one(row.name, job, ()), width=width)
        assert row.effect.split()[0] in page
        assert max(len(line) for line in page.splitlines()) <= max(width, 14 + _longest(row))


def _longest(row: variables.Variable) -> int:
    """One word cannot be broken."""
    texts = (row.name, row.effect, row.source, row.instead, row.default)
    return max(len(word) for text in texts for word in (text or "-").split()) + 8
