"""What this machine is: container, cgroup, limits, processes, software, folders."""

from __future__ import annotations

from holdfast import text
from holdfast.analysis.machine.fact import Fact, Unread


class Container(Fact, frozen=True):
    kind: str
    """'' for no container; 'docker', 'podman', 'kubernetes', 'apptainer', 'lxc', 'other'"""
    sign: str
    """how we know"""
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


class KernelEvent(Fact, frozen=True):
    kind: str
    """'xid', 'sxid' (of an NVSwitch), 'gpu' (the driver could not start one), 'oom' or 'stall'"""
    text: str
    seconds_ago: float | None
    count: int = 1
    """how often the same was reported of the same device; `text` is the last one"""


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


class Process(Fact, frozen=True):
    pid: int
    command: str
    """the command line, shortened, secrets removed"""
    user: str
    age: float
    """seconds since it started"""
    parent: int

    @property
    def description(self) -> str:
        """So that its owner recognises it."""
        return f"pid {self.pid} `{self.command}`, user {self.user}, up {text.duration(self.age)}"


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
    gloo: str | Unread
    """'built into torch 2.13.0', or '' """
    nccl: tuple[NcclLibrary, ...]
    """in the order the loader would take them"""
    packages: dict[str, str]
    """versions of accelerate, deepspeed, lightning, horovod, transformers… where installed"""
    net_plugins: tuple[str, ...] | None = None
    """files of network plugins that NCCL's loader would find; None when not looked for"""


class VariableSearch(Fact, frozen=True):
    """Which installed program's own strings hold the name of a variable."""

    searched: tuple[str, ...]
    """programs searched: 'libtorch_cpu.so (torch 2.13.0)', 'accelerate 1.9.0'"""
    prefixes: tuple[str, ...]
    """prefixes whose reader was among them, so that absence proves something: 'NCCL_'…"""
    found: dict[str, tuple[str, ...]]
    """variable -> programs that hold its name; every variable asked for has an entry"""


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
    """'holdfast', 'torch-file', 'safetensors', 'dcp-folder' or 'temporary'"""
    size: int
    age: float
    problem: str
    """'' when its structure is whole, else what is wrong"""
    incomplete: bool = False
    """the problem is that its save did not finish; what was written is not damaged"""
    unreadable: bool = False
    """the problem is that it could not be read; it may be intact"""
    step: int | None = None
    """this and all below only where it says so itself: our own do, others tell nothing"""
    world_size: int | None = None
    saved_at: float | None = None
    """wall seconds"""
    seconds: float | None = None
    """how long its writing took"""
    config: str = ""
    """a short digest of the configuration it was saved under; '' when it tells none"""
    data: str = ""
    """'global' when its place in the data holds for any world size, 'per-rank', 'unknown'"""
    files: int = 1
    """how many files it is made of"""


class RendezvousFile(Fact, frozen=True):
    """A file:// store named by the environment."""

    variable: str
    path: str
    exists: bool
    size: int
    age: float
    held_by: tuple[int, ...]
