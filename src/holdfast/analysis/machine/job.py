"""What the user means to start, and what a small job of the same kind did here."""

from __future__ import annotations

from holdfast.analysis.machine.fact import Fact, Unread
from holdfast.analysis.machine.nccl_diagnostics import DiagnosticLine
from holdfast.analysis.machine.nccl_links import NcclLink
from holdfast.findings import Evidence


class Plan(Fact, frozen=True):
    """The job the user is about to start, as far as flags and environment tell."""

    nproc: int
    """ranks on this machine"""
    min_nodes: int
    max_nodes: int
    port: int
    """the store's port; 0 means that the launcher picks one"""
    port_origin: str
    """'--port', '--master-port' (that of `holdfast run`), 'MASTER_PORT', 'PET_MASTER_PORT' or
    'default'"""
    master_addr: str
    """'' when none was named"""
    master_origin: str
    """'--master-addr', 'MASTER_ADDR', 'PET_MASTER_ADDR', or '' """
    node_rank: int | None
    rdzv_backend: str
    """'' when not named (torchrun then takes 'static')"""
    rdzv_endpoint: str
    checkpoint_folders: tuple[str, ...]
    log_folder: str
    launcher_pid: int | None
    environment: dict[str, str]
    """the whole environment the job would inherit; never printed as it is"""
    nproc_named: bool = False
    """the number of ranks was given; else it is a guess"""

    @property
    def multi_node(self) -> bool:
        return self.max_nodes > 1

    @property
    def port_named(self) -> bool:
        return self.port_origin != "default"


class Setting(Fact, frozen=True):
    """One NCCL/torch/launcher variable in force, and where it was set."""

    name: str
    value: str
    origin: str
    """'environment' or 'FILE:LINE' of an nccl.conf"""

    @property
    def evidence(self) -> Evidence:
        quote = f"{self.name}={self.value}"
        return Evidence(quote=quote, source=self.origin, setting=self.name)


class SmokeRank(Fact, frozen=True):
    rank: int
    pid: int
    device: str
    """'cpu', 'cuda:0'; '' when it never said"""
    master: str
    reached: str
    """the last stage it finished: '', 'start', 'store', 'gloo', 'nccl'"""
    error: str
    """its own words, '' when it had none"""
    exit_code: int | None
    """None when it still ran at the deadline"""
    gpu: str = ""
    """UUID of its GPU, as NVML writes it; '' without one"""


class SmokeStage(Fact, frozen=True):
    name: str
    """'loopback', 'start', 'store', 'gloo', 'nccl'"""
    status: str
    """'ok', 'failed' or 'skipped'"""
    seconds: float
    reason: str
    """why it failed or was skipped; '' when ok"""
    cause: str
    """slug of the fault behind a failure, '' when unknown or ok"""
    fix: str = ""
    """what that fault advises, where it has more to say than its page"""
    cause_speaks: bool = False
    """that fault has its own finding about this smoke test"""


class SmokeRung(Fact, frozen=True):
    """One size of the all_reduce ladder."""

    stage: str
    size: int
    seconds: float
    """median over its repeats"""
    correct: bool
    bandwidth: float
    """bus bandwidth, bytes a second: 2(n-1)/n · size / seconds"""


class SmokePair(Fact, frozen=True):
    """Two ranks that exchanged data while all others waited."""

    first: int
    second: int
    bandwidth: float
    """bytes a second, in each direction at once"""


class SmokeRound(Fact, frozen=True):
    """NCCL once more, with its faster transports switched off."""

    name: str
    """'shm' or 'net': the transport that is left"""
    settings: dict[str, str]
    """what switched the others off"""
    status: str
    """'ok', 'failed' or 'skipped'"""
    seconds: float = 0.0
    reason: str = ""
    """why it failed or was skipped; '' when ok"""
    links: tuple[NcclLink, ...] = ()
    """what NCCL used"""
    bandwidth: float = 0.0
    """of the largest all_reduce, bytes a second; 0 when none was timed"""


class Smoke(Fact, frozen=True):
    world: int
    ranks: tuple[SmokeRank, ...]
    stages: tuple[SmokeStage, ...]
    ladder: tuple[SmokeRung, ...]
    links: tuple[NcclLink, ...] = ()
    """what NCCL used in stage 'nccl', as the job would"""
    pairs: tuple[SmokePair, ...] = ()
    rounds: tuple[SmokeRound, ...] = ()
    diagnostics: tuple[DiagnosticLine, ...] | Unread = Unread(why="NCCL did not run")
    """NCCL's own"""
    shared_gpus: bool = False
    """ranks share GPUs on purpose, for a test: no speed means anything"""

    def stage(self, name: str) -> SmokeStage | None:
        return next((stage for stage in self.stages if stage.name == name), None)

    def top_rung(self, stage: str) -> SmokeRung | None:
        """Its largest all_reduce."""
        rungs = [rung for rung in self.ladder if rung.stage == stage]
        return max(rungs, key=lambda rung: rung.size, default=None)
