"""One piece of what a user wrote, and what it contains, whatever language it is written in.

The readers (lint/) fill these in; a `lint` face asks only for what it needs: a face about a
setting reads `source.settings` and so works for a shell script, a Dockerfile, a compose file, an
nccl.conf, `os.environ[…] = …` in Python, and the environment itself.
"""

from __future__ import annotations

import enum

import msgspec

from holdfast.analysis.source.program import Program
from holdfast.findings import Place


class SourceKind(enum.Enum):
    """What a piece of source is; a fenced block of a document has the kind of its language."""

    PYTHON = "python"
    SHELL = "shell"
    DOCKERFILE = "dockerfile"
    COMPOSE = "compose"
    YAML = "yaml"
    """Kubernetes manifests and Accelerate's configuration"""
    ENV_FILE = "env file"
    NCCL_CONF = "nccl.conf"
    HOSTFILE = "hostfile"
    ENVIRONMENT = "environment"
    """of the process that runs `holdfast lint --env`"""


class ShellWord(msgspec.Struct, frozen=True, kw_only=True):
    """One word of a command."""

    text: str
    """quotes removed and variables of the same script filled in; as written where not `known`"""
    place: Place
    known: bool = True
    """False: part of it is only known when it runs ($1, $(hostname), <placeholder>)"""


class SourceSetting(msgspec.Struct, frozen=True, kw_only=True):
    """A variable is given a value."""

    name: str
    value: str
    """as Word.text"""
    place: Place
    known: bool = True
    """False: the value is only known when it runs, or is a placeholder (`<iface>`, `...`)"""
    exported: bool = True
    """False: a shell variable that no program sees (yet)"""
    written: str = ""
    """the value as written: `$(( 40000 + RANDOM % 20000 ))`"""
    by: str = ""
    """how it is set: 'export', 'shell', 'prefix', 'unset', 'env file', 'ENV', 'docker -e',
    'mpirun -x', 'srun --export', 'compose', 'nccl.conf', 'os.environ', 'environment';
    'sysctl.conf': a setting of the kernel, under its dotted name"""
    arms: tuple[tuple[int, int], ...] = ()
    """(fork, arm) of every if and case around it: settings in two arms of one fork never meet"""


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """A simple command, wherever it is: in a loop, a function, `$(…)`, a Dockerfile's RUN."""

    name: str
    """basename of the program, wrappers taken off: 'pkill' for `sudo -E nohup /usr/bin/pkill`"""
    words: tuple[ShellWord, ...]
    """from the program itself on; wrappers (sudo, env, nohup, exec, time, timeout…) taken off"""
    place: Place
    settings: tuple[SourceSetting, ...] = ()
    """what it finds in its environment by this source: exports before it, its own prefixes"""
    loops: tuple[int, ...] = ()
    """indexes into Source.loops of the loops around it, outermost first"""
    background: bool = False
    writes_to: tuple[ShellWord, ...] = ()
    """files its output is sent to"""
    wrappers: tuple[str, ...] = ()
    """names of what was taken off: ('sudo', 'timeout')"""
    number: int = 0
    """its position among the commands of the source, in order of the text"""


class ShellLoop(msgspec.Struct, frozen=True, kw_only=True):
    """A shell loop."""

    kind: str
    """'while', 'until' or 'for'"""
    place: Place
    last_line: int
    condition: str
    """as written"""


class Flag(msgspec.Struct, frozen=True, kw_only=True):
    """An option of a launcher or container engine, under its canonical name."""

    name: str
    """long form, with dashes and no leading ones: 'nproc-per-node' for --nproc_per_node"""
    value: str
    """'' for a switch"""
    place: Place
    known: bool = True


class HostSlots(msgspec.Struct, frozen=True, kw_only=True):
    """A line of a hostfile."""

    name: str
    slots: int | None
    place: Place


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """A command that starts the ranks of a job."""

    kind: str
    """'torchrun', 'torch.distributed.launch', 'deepspeed', 'accelerate', 'horovodrun', 'mpirun',
    'srun', 'sbatch' (the #SBATCH lines of a script), 'python', 'holdfast'"""
    flags: tuple[Flag, ...]
    place: Place
    script: str = ""
    """the Python file it starts, as written; '' when unknown"""
    script_arguments: tuple[ShellWord, ...] = ()
    settings: tuple[SourceSetting, ...] = ()
    """environment in force, as of Command"""
    command: Command | None = None
    around: tuple[str, ...] = ()
    """kinds of launchers that start this one: ('srun',) for `srun torchrun …`"""
    hosts: tuple[HostSlots, ...] = ()
    """of the hostfile it names, where that was read too"""

    def flag(self, *names: str) -> Flag | None:
        """The last one given under any of these names; the last one wins."""
        return next((f for f in reversed(self.flags) if f.name in names), None)

    def setting(self, name: str) -> SourceSetting | None:
        return next((s for s in reversed(self.settings) if s.name == name), None)

    @property
    def machines(self) -> int | None:
        """The most machines it may use; None when it does not say."""
        counts = [len({host.name for host in self.hosts})] if self.hosts else []
        listed = self.flag("host", "hosts")
        if listed is not None and listed.known and listed.value:
            names = {entry.partition(":")[0] for entry in listed.value.split(",")}
            counts.append(len(names - {""}))
        told = self.flag("nnodes", "num-nodes", "num-machines", "nodes")
        if told is not None and told.known:
            most = told.value.rpartition(":")[2].rpartition("-")[2]  # '1:4', '2-4'
            counts += [int(most)] if most.isdecimal() and len(most) < 10 else []
        return max(counts, default=None)


class ContainerRun(msgspec.Struct, frozen=True, kw_only=True):
    """A container that is started: `docker run`, `podman run`, a compose service."""

    engine: str
    """'docker', 'podman', 'compose', 'kubernetes', 'apptainer'; 'image': of a Dockerfile"""
    options: tuple[Flag, ...]
    """by docker's long names: network, ipc, shm-size, sysctl, ulimit, gpus, env, privileged,
    publish, user, volume, pid, cap-add, device, runtime; one entry per occurrence. 'build' is the
    Dockerfile, 'command' and 'entrypoint' stand for those keys of a compose service, 'form' is
    the exec or shell form of what an image starts"""
    place: Place
    image: str = ""
    words: tuple[ShellWord, ...] = ()
    """what it runs inside"""
    service: str = ""
    """its name in a compose file or manifest"""
    ends: Place | None = None
    """behind its text, in a compose file, a manifest or a Dockerfile"""
    replicas: int | None = 1
    """of a compose service; None where it is only known when it starts"""

    def option(self, name: str) -> Flag | None:
        return next((o for o in reversed(self.options) if o.name == name), None)

    def every(self, name: str) -> tuple[Flag, ...]:
        return tuple(o for o in self.options if o.name == name)


class PodGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Pods that are made from one template."""

    name: str
    """in its workload: 'Worker'; '' where there is one template only"""
    count: int | None
    """how many run at the same time; None where that is only known in the cluster"""
    counted: Place | None
    """where the count is said; None: one pod, by default"""
    containers: tuple[ContainerRun, ...]
    subdomain: str
    dns_of_the_node: bool
    """names of services are not resolved: hostNetwork without ClusterFirstWithHostNet"""
    place: Place


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """A resource of Kubernetes that runs pods."""

    kind: str
    """'Pod', 'Job', 'JobSet', 'StatefulSet', 'Deployment', 'ReplicaSet', 'PyTorchJob', 'TrainJob',
    'Volcano Job'"""
    name: str
    """'' where it is only known in the cluster"""
    groups: tuple[PodGroup, ...]
    subdomain: str
    """the headless service under which its pods have names"""
    place: Place
    scaled: bool = False
    """the number of its pods may be changed while it runs: an elasticPolicy"""

    @property
    def pods(self) -> int | None:
        counts = [group.count for group in self.groups]
        return sum(count for count in counts if count is not None) if None not in counts else None


class NetworkService(msgspec.Struct, frozen=True, kw_only=True):
    """A Service of Kubernetes."""

    name: str
    headless: bool
    """its name stands for the pods themselves, and each pod has a name below it"""
    ports: tuple[int, ...]
    """that it forwards, where it is not headless"""
    place: Place


class LintingMachine(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of the machine that lints; scripts may be meant for another one."""

    torch: str = ""
    """version, installed or named by [tool.holdfast]; '' when unknown: then today's rules count"""
    nccl: str = ""
    python: str = ""
    interfaces: tuple[str, ...] | None = None
    rdma_devices: tuple[str, ...] | None = None
    ephemeral: tuple[int, int] = (32768, 60999)
    """net.ipv4.ip_local_port_range; Linux's default where it could not be read"""


class SyntaxRefusal(msgspec.Struct, frozen=True, kw_only=True):
    """Its language does not accept this piece, or not all of it."""

    error: str
    """'IndentationError: expected an indented block after 'for' statement'"""
    place: Place
    confirmed: bool = True
    """False: our grammar could not parse all of it, and bash has not been asked yet"""


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """One piece of one file: a whole script, or a fenced block of a document."""

    file: str
    kind: SourceKind
    program: Program | None = None
    """of Python only"""
    refused: SyntaxRefusal | None = None
    settings: tuple[SourceSetting, ...] = ()
    """in order of the text"""
    reads: frozenset[str] = frozenset()
    """variables this piece itself asks for: `$NAME` in a shell script"""
    commands: tuple[Command, ...] = ()
    loops: tuple[ShellLoop, ...] = ()
    launches: tuple[Launch, ...] = ()
    containers: tuple[ContainerRun, ...] = ()
    workloads: tuple[Workload, ...] = ()
    services: tuple[NetworkService, ...] = ()
    hosts: tuple[HostSlots, ...] = ()
    started_by: tuple[Launch, ...] = ()
    """launches in other files of this lint that name this script"""
    complete: bool = True
    """False: an excerpt (a fenced block); what is missing may be elsewhere"""
    here: LintingMachine = LintingMachine()

    def setting(self, name: str) -> SourceSetting | None:
        """The last value given to it in this piece; None after `unset`."""
        last = next((s for s in reversed(self.settings) if s.name == name), None)
        return None if last is None or last.by == "unset" else last

    @property
    def machines(self) -> int | None:
        """The most machines that its launches may use; None when they do not say."""
        counts = [n for launch in self.launches if (n := launch.machines) is not None]
        return max(counts, default=None)
