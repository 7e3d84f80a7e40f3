"""What is printed for `eval`: little, all of it read, and good enough for our own lint."""

from __future__ import annotations

import os
import subprocess
from typing import Any

import msgspec
import pytest

from holdfast import catalogue
from holdfast.analysis import machine as f
from holdfast.analysis.source.source import LintingMachine
from holdfast.analysis.variables.status import Effect
from holdfast.env import export, setting_status
from holdfast.env.export import Export
from holdfast.env.job import Job
from holdfast.lint.readers import shell
from tests.env.made_jobs import CPU_BUILD, a_job
from tests.faults.machines import a_loopback, a_machine, a_plan, an_interface, settings

BRIDGE = an_interface("br-1a2b", "172.18.0.1", kind="bridge", speed=None)
SEVERAL = a_plan(min_nodes=2, max_nodes=2)


def made(job: Job, preset: str = "") -> Export:
    return export.export(job, setting_status.judge(job), preset, "/scratch/kim")


def values(job: Job, preset: str = "") -> dict[str, str | None]:
    return {line.name: line.value for line in made(job, preset).lines}


def nccl(version: str) -> dict[str, Any]:
    return {"nccl": (f.NcclLibrary(path="x", version=version, origin="system"),)}


def test_normally_nothing() -> None:
    answer = made(a_job())
    assert answer.lines == ()
    assert "nothing needs to be set" in answer.remarks[0]


def test_first_run() -> None:
    assert values(a_job(), "first-run") == {
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_SUBSYS": "INIT,BOOTSTRAP,ENV,NET",
        "NCCL_DEBUG_FILE": "/scratch/kim/nccl.%h.%p.log",
        "TORCH_DISTRIBUTED_DEBUG": "INFO",
        "TORCH_CPP_LOG_LEVEL": "INFO",
        "TORCH_FR_DUMP_TEMP_FILE": "/scratch/kim/nccl_trace_rank_",
    }


def test_production() -> None:
    assert values(a_job(), "production") == {
        "NCCL_DEBUG": "WARN",
        "TORCH_FR_DUMP_TEMP_FILE": "/scratch/kim/nccl_trace_rank_",
    }


def test_older_versions_get_the_names_they_read() -> None:
    old = values(a_job(software={"torch": "2.4.1", **nccl("2.20.5")}), "first-run")
    assert old["NCCL_DEBUG_SUBSYS"] == "INIT,ENV,NET"
    assert old["TORCH_NCCL_TRACE_BUFFER_SIZE"] == "2000"
    assert old["TORCH_NCCL_DUMP_ON_TIMEOUT"] == "1"
    assert "TORCH_NCCL_DEBUG_INFO_TEMP_FILE" in old
    assert "TORCH_FR_DUMP_TEMP_FILE" not in old
    assert not [n for n in values(a_job(software={"torch": "2.1.0"}), "production") if "FR" in n]


def test_what_the_libraries_hold_decides_between_two_names() -> None:
    new, old = "TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"
    search = f.VariableSearch(
        searched=("libtorch_cuda.so (torch 2.8.0)",), prefixes=(), found={new: ("x",), old: ("x",)}
    )
    machine = a_machine(variable_search=search)
    assert new in values(a_job(machine=machine, software={"torch": "2.8.0"}), "production")


def test_a_cpu_build_gets_nothing_of_nccl() -> None:
    answer = made(a_job(software=CPU_BUILD), "first-run")
    assert not [line.name for line in answer.lines if "NCCL" in line.name or "FR_" in line.name]
    assert any("no NCCL_ setting is read" in remark for remark in answer.remarks)


def test_what_does_nothing_or_harm_is_dropped() -> None:
    job = a_job(NCCL_TIMEOUT="9", TORCH_NCCL_ASYNC_ERROR_HANDLING="0", NCCL_DEBUG="INFO")
    assert values(job) == {"NCCL_TIMEOUT": None, "TORCH_NCCL_ASYNC_ERROR_HANDLING": None}
    in_a_file = a_machine(settings=settings("/etc/nccl.conf:1", NCCL_TIMEOUT="9"))
    assert values(a_job(machine=in_a_file)) == {}


# --- interfaces -----------------------------------------------------------------------------------


def on(*interfaces: f.Interface, plan: f.Plan = SEVERAL, **changes: Any) -> Job:
    return a_job(machine=a_machine(plan, interfaces=interfaces, **changes))


def test_an_interface_is_named_only_where_the_choice_would_be_wrong() -> None:
    good = on(a_loopback(), an_interface(), BRIDGE)
    bad = on(a_loopback(), BRIDGE, an_interface())
    assert values(good) == {}
    assert values(bad) == {"NCCL_SOCKET_IFNAME": "=eth0"}
    assert values(on(BRIDGE, an_interface(), plan=a_plan())) == {}  # one machine: no matter


def test_another_card_or_infiniband_is_left_alone() -> None:
    assert values(on(an_interface("eth1", "10.9.0.1"), an_interface())) == {}
    assert values(on(an_interface(), an_interface("ib0", "10.8.0.1"))) == {}


def test_the_way_to_the_master_counts() -> None:
    master = f.Resolution(name="node-b", addresses=("10.7.0.9",), error="", seconds=0.0)
    routes = (
        f.Route(interface="eth0", destination="0.0.0.0/0", gateway="10.0.0.1", metric=100),
        f.Route(interface="eth5", destination="10.7.0.0/16", gateway="", metric=0),
    )
    job = on(BRIDGE, an_interface(), an_interface("eth5", "10.7.0.1"), master_name=master,
             routes=routes)  # fmt: skip
    assert values(job) == {"NCCL_SOCKET_IFNAME": "=eth5"}


def test_gloo_is_helped_where_the_own_name_is_loopback() -> None:
    own = f.Resolution(name="node-a", addresses=("127.0.1.1",), error="", seconds=0.0)
    assert values(on(a_loopback(), an_interface(), own_name=own)) == {"GLOO_SOCKET_IFNAME": "eth0"}


# --- our own judgement of what we print -----------------------------------------------------------

MACHINES = [
    a_job(),
    a_job(software={"torch": "2.4.1", **nccl("2.20.5")}),
    a_job(software={"torch": "2.8.0", **nccl("2.27.3")}),
    a_job(software={"torch": "", "nccl": ()}),
    a_job(software=CPU_BUILD),
    on(a_loopback(), BRIDGE, an_interface()),
]


@pytest.mark.parametrize("preset", ["", "first-run", "production"])
@pytest.mark.parametrize("job", MACHINES)
def test_all_of_it_is_read_and_in_force(job: Job, preset: str) -> None:
    wanted = {n: v for n, v in values(job, preset).items() if v is not None}
    facts = msgspec.structs.replace(job.facts, settings=settings(**wanted))
    after = setting_status.judge(msgspec.structs.replace(job, facts=facts))
    assert [one for one in after if one.status.concern] == []
    installed = job.software is not None and job.software.torch
    fine = {Effect.IN_FORCE} if installed else {Effect.IN_FORCE, Effect.NO_READER}
    assert {one.verdict for one in after} <= fine, after


@pytest.mark.parametrize("preset", ["", "first-run", "production"])
@pytest.mark.parametrize("job", MACHINES)
def test_lint_has_nothing_to_say_about_it(job: Job, preset: str) -> None:
    source = shell.read(export.shell(made(job, preset)), "env.sh")
    assert job.software is not None
    version = job.software.nccl[0].version if job.software.nccl else ""
    source = msgspec.structs.replace(
        source, here=LintingMachine(torch=job.software.torch, nccl=version)
    )
    found = [one for entry in catalogue.entries() for one in entry.fault.ask_lint(source)]
    assert found == []


def test_nothing_of_a_value_or_name_is_run() -> None:
    odd = {"NCCL_SOCKET_IFNAME": "ib9\ntouch /tmp/x", "NCCL_TIMEOUT;echo run": "1"}
    machine = a_machine(settings=settings(**odd))
    lines = export.shell(made(a_job(machine=machine))).splitlines()
    assert all(line.startswith(("# ", "unset NCCL_SOCKET_IFNAME")) for line in lines)
    assert not any("echo run" in line for line in lines if not line.startswith("#"))


def test_a_shell_takes_it_as_it_is_meant() -> None:
    text = export.shell(made(a_job(NCCL_TIMEOUT="9"), "first-run"))
    shown = subprocess.run(
        ["sh", "-euc", f'{text}\nprintf "%s " "$NCCL_DEBUG_FILE" "${{NCCL_TIMEOUT-gone}}"'],
        env={"PATH": os.environ["PATH"], "NCCL_TIMEOUT": "9"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert shown.stdout == "/scratch/kim/nccl.%h.%p.log gone "
