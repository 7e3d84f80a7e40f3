"""`holdfast explain --ras` against the fake RAS: what is said of a job that runs, and the codes."""

from __future__ import annotations

import itertools
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.analysis.ras import judge
from holdfast.analysis.ras.address import SETTING, RasAddress
from holdfast.cli.main import main
from holdfast.explain import live_ras
from holdfast.system import interface_addresses, ras_processes
from tests.cli.holdfast_command import wait_until
from tests.run.watched import process
from tests.system import ras_server
from tests.system.ras_server import FakeCommunicator, FakeJob, FakeRank, job


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two answers are compared at once: the fake does not change by itself."""
    monkeypatch.setattr(judge, "APART", 0.01)
    monkeypatch.setattr(live_ras, "APART", 0.05)


def test_a_rank_that_stays_behind(capsys: pytest.CaptureFixture[str]) -> None:
    with ras_server.serving(job(129, 129, 128)) as port:
        assert main(["explain", "--ras", f"localhost:{port}"]) == 1
    told = capsys.readouterr().out
    assert "rank-stuck[HOLD606] rank 2 (host 192.0.2.2, pid 602) (likely)" in told
    assert "what NCCL's RAS says:\n  NCCL 2.28.9: 3 processes on 1 host; all answer" in told


def test_a_job_that_moves_is_well(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One rank is always one behind, as a snapshot shows it; the address is that of the job."""
    count = itertools.count(100)
    asked = lambda: job(next(count), next(count), next(count))  # noqa: E731
    with ras_server.serving(asked) as port:
        monkeypatch.setenv(SETTING, f"127.0.0.1:{port}")
        assert main(["explain", "--ras"]) == 0
    assert capsys.readouterr().out.startswith("NCCL's RAS finds nothing wrong")


def test_diagnostics_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    lines = [
        "n:1 NCCL DIAG === RAS Diagnostics ===",
        "n:1 NCCL DIAG [OK]   ECC: no uncorrected volatile errors across 2 ranks in comm 0x12",
        "n:1 NCCL DIAG [INFO] NVLink: 1 inactive link(s) on rank(s) {1} in comm 0x12",
    ]
    made = FakeJob(communicators=job(1, 1).communicators, nccl="2.31.2", diagnostics=lines)
    with ras_server.serving(made) as port:
        assert main(["explain", "--json", "--ras", f":{port}"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["diagnoses"] == []
    assert "NCCL's diagnostics: NVLink: 1 inactive link(s) on rank(s) {1}" in told["ras"]
    assert "NCCL's diagnostics found nothing wrong with: ECC" in told["ras"]


def test_the_diagnostics_of_a_real_job(capsys: pytest.CaptureFixture[str]) -> None:
    """NCCL 2.32.3 on one H200, which three ranks share by NCCL_HOSTID."""
    lines = (ras_server.RECORDED / "diagnostics-2.32.3.txt").read_text().splitlines()
    made = FakeJob(communicators=job(1, 1, 1).communicators, nccl="2.32.3", diagnostics=lines)
    with ras_server.serving(made) as port:
        assert main(["explain", "--json", "--ras", f":{port}"]) == 0
    told = [one for one in json.loads(capsys.readouterr().out)["ras"] if "diagnostics" in one]
    assert any("mismatch across 3 ranks" in one and "NCCL_HOSTID" in one for one in told)
    assert "NCCL's diagnostics could not check: rdma_topo check, IOMMU mode, ATS state" in told
    assert sum("ECC" in one for one in told) == 1


def test_a_job_that_has_no_communicator_yet_is_not_called_well(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with ras_server.serving(FakeJob(communicators=())) as port:
        assert main(["explain", "--ras", f":{port}"]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert "no communicator that is ready" in told.err


def test_another_job_on_the_same_port_is_not_mixed_in() -> None:
    """The kernel picks whose process answers."""
    jobs = itertools.cycle([job(5, 5), job(7, 6, first_pid=900), job(7, 6, first_pid=900)])
    turn: Iterator[FakeJob] = (made for made in jobs for _ in range(3))  # three commands each
    with ras_server.serving(lambda: next(turn)) as port:
        seen = live_ras.look(RasAddress("127.0.0.1", port))
    assert [answer.pids for answer in seen.answers] == [{600, 601}, {600, 601}]
    assert seen.other_jobs


def test_where_nothing_answers(capsys: pytest.CaptureFixture[str]) -> None:
    with ras_server._listener(0) as link:
        port = link.getsockname()[1]
    assert main(["explain", "--ras", f"localhost:{port}"]) == 2
    assert "nothing listens there: NCCL is older than 2.24" in capsys.readouterr().err
    assert main(["explain", "--ras", "a:b:c"]) == 2
    assert "'a:b:c' is not HOST:PORT" in capsys.readouterr().err


MAPPED = (
    "import mmap, time\n"
    "library = open({path!r}, 'rb')\n"
    "memory = mmap.mmap(library.fileno(), 0, prot=mmap.PROT_READ)\n"
    "time.sleep(600)\n"
)


def test_the_kernel_is_asked_about_processes_of_this_machine(tmp_path: Path) -> None:
    library = tmp_path / "libnccl.so.2"
    library.write_bytes(b"x")
    script = MAPPED.format(path=str(library))
    here = next(one.ip for one in interface_addresses.interface_addresses())
    with process(script) as alive, process("import time; time.sleep(600)") as stopped:
        wait_until(lambda: ras_processes._uses_nccl(alive.pid))
        os.kill(stopped.pid, signal.SIGSTOP)
        ranks = (
            FakeRank(0, alive.pid, host=here),
            FakeRank(1, stopped.pid, host=here, state="silent"),
            FakeRank(2, 2**22 - 1, host=here, state="silent"),
            FakeRank(3, 1, host="192.0.2.9", state="silent"),
        )
        with ras_server.serving(FakeJob(communicators=(FakeCommunicator(ranks),))) as port:
            seen = live_ras.look(RasAddress("127.0.0.1", port))
        assert seen.answers[-1].states == {stopped.pid: "T", 2**22 - 1: ""}
        elsewhere = (FakeRank(0, 1, host=here), *ranks[1:])
        with ras_server.serving(FakeJob(communicators=(FakeCommunicator(elsewhere),))) as port:
            seen = live_ras.look(RasAddress("127.0.0.1", port))
        assert seen.answers[-1].states == {}  # its pids mean other processes here
