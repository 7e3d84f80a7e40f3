"""What can be known of one machine: frozen nouns, no I/O, no judgement.

Every answer is a value or `Unread` with the reason: 'could not look' is never 'healthy'.
The nouns are msgspec structs, so that a reader in a child process, or on another machine,
can hand them over as typed bytes.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec


class Fact(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The base of every fact; the tag lets `Shm | Unread` travel as bytes."""


class Unread(Fact, frozen=True):
    """We could not look, because…"""

    why: str


class CouldNotLook(Exception):  # noqa: N818 - it is an answer, not an error
    """Raised by `known`; the catalogue turns it into a `skipped` finding."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


T = TypeVar("T")


def known(value: T | Unread) -> T:
    """The value, or stop this check with the reason why it could not be read."""
    if isinstance(value, Unread):
        raise CouldNotLook(value.why)
    return value


# --- what the user means to start -------------------------------------------------------------


class Plan(Fact, frozen=True):
    """The job the user is about to start, as far as flags and environment tell."""

    nproc: int
    """ranks on this machine"""
    min_nodes: int
    max_nodes: int
    port: int
    """the store's port; 0 means that the launcher picks one"""
    port_origin: str
    """'--port', 'MASTER_PORT', 'PET_MASTER_PORT' or 'default'"""
    master_addr: str
    """'' when nobody named one"""
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


# --- processes ---------------------------------------------------------------------------------


class Process(Fact, frozen=True):
    pid: int
    command: str
    """the command line, shortened, secrets removed"""
    user: str
    age: float
    """seconds since it started"""
    parent: int


class Orphan(Fact, frozen=True):
    """A training process whose launcher is gone."""

    process: Process
    rank: int | None
    run_id: str
    """TORCHELASTIC_RUN_ID or ''"""
    sign: str
    """how we know: 'TORCHELASTIC_RUN_ID is set and its parent is pid 1 (systemd)'"""


class ShmSegment(Fact, frozen=True):
    """A file in /dev/shm of the kind that training leaves behind."""

    path: str
    size: int
    age: float
    mapped_by: tuple[int, ...]
    """pids that hold it open or mapped, as far as visible"""
    all_visible: bool
    """False when a process that may hold it could not be inspected"""


class StuckProcess(Fact, frozen=True):
    """A process in uninterruptible sleep (state D), seen so in two looks."""

    process: Process
    wait_channel: str


class Leftovers(Fact, frozen=True):
    orphans: tuple[Orphan, ...]
    segments: tuple[ShmSegment, ...]
    stuck: tuple[StuckProcess, ...]


# --- the port ----------------------------------------------------------------------------------


class Bind(Fact, frozen=True):
    """One try to bind the store's port by the store's own rule (SO_REUSEADDR, no listen)."""

    family: str
    """'IPv6' ([::], dual stack) or 'IPv4' (0.0.0.0)"""
    error: str
    """'' when it worked, else the errno's name: 'EADDRINUSE', 'EACCES', …"""


class Connection(Fact, frozen=True):
    """A socket whose local port is the one we want."""

    local: str
    peer: str
    state: str
    """the kernel's name: 'LISTEN', 'ESTABLISHED', 'TIME_WAIT', …"""
    seconds_left: float | None
    """only for TIME_WAIT"""
    user: str
    """'' when the kernel no longer tells"""
    owner: Process | Unread | None
    """None for states that have no process (TIME_WAIT)"""


class StoreAnswer(Fact, frozen=True):
    """Does a listener on our port speak the protocol of torch's TCPStore?"""

    is_store: bool
    keys: int | None
    """how many keys the store holds, when it told us"""


class PortFacts(Fact, frozen=True):
    port: int
    binds: tuple[Bind, ...]
    listeners: tuple[Connection, ...]
    others: tuple[Connection, ...]
    """non-listening sockets with this local port: outgoing, accepted, TIME_WAIT"""
    store: StoreAnswer | Unread | None
    """None when nobody listens"""


class PortRanges(Fact, frozen=True):
    ephemeral_low: int
    ephemeral_high: int
    reserved: tuple[tuple[int, int], ...]
    """ip_local_reserved_ports, inclusive ranges"""
    first_unprivileged: int


# --- limits ------------------------------------------------------------------------------------


class Limit(Fact, frozen=True):
    """None means unlimited."""

    soft: int | None
    hard: int | None


class Limits(Fact, frozen=True):
    pid: int
    nofile: Limit
    memlock: Limit
    """bytes"""
    nproc: Limit
    stack: Limit
    """bytes"""
    ipc_lock: bool
    """CAP_IPC_LOCK: memlock does not bind"""
    sys_resource: bool
    """CAP_SYS_RESOURCE or uid 0: nproc does not bind"""


class ProcessRoom(Fact, frozen=True):
    """How many processes and threads may still be started."""

    user_threads: int
    """threads of this user now"""
    pids_max: int | None
    """the cgroup's limit; None means unlimited"""
    pids_current: int | None
    threads_max: int
    """kernel.threads-max"""
    pid_max: int


class Shm(Fact, frozen=True):
    size: int
    free: int
    tried: int
    """bytes of the real allocation we tried (and gave back)"""
    error: str
    """'' when it worked, else the errno's name"""


# --- network -----------------------------------------------------------------------------------


class Address(Fact, frozen=True):
    ip: str
    prefix: int


class Interface(Fact, frozen=True):
    name: str
    state: str
    """operstate: 'up', 'down', 'unknown'…"""
    running: bool
    """IFF_UP and IFF_RUNNING"""
    kind: str
    """'loopback', 'physical', 'bridge', 'veth', 'virtual'"""
    speed: int | None
    """Mb/s; None when the kernel does not know"""
    mtu: int
    carrier_changes: int | None
    addresses: tuple[Address, ...]


class Route(Fact, frozen=True):
    interface: str
    destination: str
    """CIDR; '0.0.0.0/0' or '::/0' is the default route"""
    gateway: str
    metric: int


class Resolution(Fact, frozen=True):
    name: str
    addresses: tuple[str, ...]
    """in the resolver's order, IPv4 and IPv6"""
    error: str
    """'' or the resolver's words"""
    seconds: float


class Reach(Fact, frozen=True):
    """What one TCP connect to an address and port brought."""

    address: str
    port: int
    error: str
    """'' when connected, else 'ECONNREFUSED', 'ETIMEDOUT' (nothing came back), 'EHOSTUNREACH'…"""
    seconds: float


# --- where we run ------------------------------------------------------------------------------


class Container(Fact, frozen=True):
    kind: str
    """'' for no container; 'docker', 'podman', 'kubernetes', 'apptainer', 'lxc', 'other'"""
    sign: str
    """what told us"""
    rootless: bool | None
    network: str
    """'host', 'own' or 'unknown'"""
    ipc: str
    """'host', 'own' or 'unknown'"""


class Cgroup(Fact, frozen=True):
    version: int
    path: str
    cpu_quota: float | None
    """cores; None means no quota"""
    throttled_share: float | None
    """share of scheduler periods in which the quota ran out, since the cgroup was made"""
    memory_limit: int | None
    memory_used: int | None
    oom_kills: int | None
    """since the cgroup was made"""
    memory_pressure: float | None
    """PSI 'some avg60' in per cent"""
    cpu_pressure: float | None


class HostLoad(Fact, frozen=True):
    cpus_online: int
    cpus_usable: int
    """by this process's affinity"""
    load1: float
    memory_total: int
    memory_available: int
    swap_total: int
    swap_used: int
    busy: tuple[Process, ...]
    """other processes that used more than half a core while we looked"""


class Security(Fact, frozen=True):
    selinux: str
    """'enforcing', 'permissive', 'disabled', 'absent', or 'active' when the mode is hidden"""
    denials: tuple[str, ...] | Unread
    """recent AVC lines that name python, torch or a container"""
    firewall: str
    """'none seen', 'nftables: 3 tables', 'firewalld active'… what could be read"""
    rules: int | Unread
    """number of filter rules, where we may read them"""


class ClockSync(Fact, frozen=True):
    synchronised: bool
    max_error: float
    """seconds, the kernel's own bound"""


class Folder(Fact, frozen=True):
    path: str
    purpose: str
    """'checkpoints' or 'logs'"""
    exists: bool
    looked_at: str
    """the folder itself, or its nearest existing parent"""
    is_directory: bool
    filesystem: str
    read_only: bool
    size: int
    free: int
    """bytes this user may still write"""
    inodes: int
    inodes_free: int
    write_error: str
    """'' when an unnamed file could be made and filled, else the errno's name"""


class CheckpointItem(Fact, frozen=True):
    """One checkpoint, or what is left of one, in a checkpoint folder."""

    path: str
    kind: str
    """'torch-file', 'safetensors', 'dcp-folder' or 'temporary'"""
    size: int
    age: float
    problem: str
    """'' when its structure is whole, else what is wrong"""


class RendezvousFile(Fact, frozen=True):
    """A file:// store named by the environment."""

    variable: str
    path: str
    exists: bool
    size: int
    age: float
    held_by: tuple[int, ...]


class KernelEvent(Fact, frozen=True):
    kind: str
    """'xid', 'oom' or 'stall'"""
    text: str
    seconds_ago: float | None


# --- software ----------------------------------------------------------------------------------


class NcclLibrary(Fact, frozen=True):
    path: str
    version: str
    """'' when the file does not tell"""
    origin: str
    """'LD_PRELOAD', 'python package', 'LD_LIBRARY_PATH', 'system', 'static in torch'"""


class Software(Fact, frozen=True):
    python: str
    executable: str
    torch: str
    """'' when not installed for this interpreter"""
    torch_cuda: str
    """the CUDA version torch was built for, '' for a CPU build"""
    gloo: str
    """'built into torch 2.13.0', or '' """
    nccl: tuple[NcclLibrary, ...]
    """in the order the loader would take them"""
    packages: dict[str, str]
    """versions of accelerate, deepspeed, lightning, horovod, transformers… where installed"""


class VariableSearch(Fact, frozen=True):
    """Which installed program's own strings hold the name of a variable."""

    searched: tuple[str, ...]
    """programs searched: 'libtorch_cpu.so (torch 2.13.0)', 'accelerate 1.9.0'"""
    prefixes: tuple[str, ...]
    """prefixes whose reader was among them, so that absence proves something: 'NCCL_'…"""
    found: dict[str, tuple[str, ...]]
    """variable -> programs that hold its name; every variable asked for has an entry"""


# --- the smoke test ----------------------------------------------------------------------------


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


class SmokeRung(Fact, frozen=True):
    """One size of the all_reduce ladder."""

    stage: str
    size: int
    seconds: float
    """median over its repeats"""
    correct: bool
    bandwidth: float
    """bus bandwidth, bytes a second: 2(n-1)/n · size / seconds"""


class Smoke(Fact, frozen=True):
    world: int
    ranks: tuple[SmokeRank, ...]
    stages: tuple[SmokeStage, ...]
    ladder: tuple[SmokeRung, ...]


# --- all of it ---------------------------------------------------------------------------------


class MachineFacts(Fact, frozen=True):
    """Everything we know of one machine. One reader per field (machine/collect.py)."""

    plan: Plan
    host: str
    settings: tuple[Setting, ...] | Unread
    port: PortFacts | Unread
    port_ranges: PortRanges | Unread
    limits: Limits | Unread
    launcher_limits: Limits | Unread | None
    """of the pid the user named; None when none was named"""
    process_room: ProcessRoom | Unread
    shm: Shm | Unread
    interfaces: tuple[Interface, ...] | Unread
    routes: tuple[Route, ...] | Unread
    own_name: Resolution | Unread
    own_fqdn: str | Unread
    master_name: Resolution | Unread | None
    """None when no master address was named"""
    master_reach: Reach | Unread | None
    """None when the master is this machine, or none was named"""
    loopback: tuple[Reach, ...] | Unread
    """listen and connect on 127.0.0.1 and ::1"""
    container: Container | Unread
    cgroup: Cgroup | Unread
    load: HostLoad | Unread
    security: Security | Unread
    clock: ClockSync | Unread
    folders: tuple[Folder, ...] | Unread
    checkpoints: tuple[CheckpointItem, ...] | Unread
    rendezvous_files: tuple[RendezvousFile, ...] | Unread
    kernel_log: tuple[KernelEvent, ...] | Unread
    leftovers: Leftovers | Unread
    software: Software | Unread
    variable_search: VariableSearch | Unread
    rdma_devices: tuple[str, ...] | Unread
    """names under /sys/class/infiniband"""
    accelerators: tuple[str, ...] | Unread
    """GPU device nodes: '/dev/nvidia0'"""
    smoke: Smoke | Unread | None
    """None when not asked for"""

    def setting(self, name: str) -> Setting | None:
        """The value in force: the environment beats any nccl.conf."""
        return next((s for s in known(self.settings) if s.name == name), None)
