"""The container was started with flags that do not work, or without flags it needs.

What you see   The container does not start: `could not select device driver "" with capabilities:
               [[gpu]]`, `unknown or invalid runtime name: nvidia`, `sysctl "net.…" not allowed in
               host network namespace`. Or it starts without GPUs: `The NVIDIA Driver was not
               detected`. Or it loses them later: `Failed to initialize NVML: Unknown Error`. Or
               `Read-only file system` under /proc/sys.
Why            Containers get GPUs through NVIDIA's container toolkit, which must be installed and
               registered with the engine. net.* sysctls belong to a network namespace, and with
               `--network=host` the container has none. `--shm-size` has no effect with
               `--ipc=host`. On systemd hosts `systemctl daemon-reload` can remove the GPU devices
               from containers that were started without naming them.
How to be sure `docker run --rm --gpus all IMAGE nvidia-smi` shows whether containers get GPUs at
               all; `docker inspect` shows the flags in force.
Fix            A command that works for one machine or several: `docker run --gpus all
               --network=host --ipc=host --ulimit memlock=-1 --ulimit nofile=131072 IMAGE …`; set
               sysctls on the host itself. For lost devices: name them (`--device /dev/nvidia0 …`)
               or use CDI, and restart the container.
Known limits   Lint knows the flags of docker, podman and compose; options hidden in variables or
               scripts are not judged. `check` does not inspect the container's flags.
Sources        https://docs.docker.com/reference/cli/docker/container/run/ (--gpus, --sysctl, --ipc)
               opencontainers/runc libcontainer/configs/validate/validator.go: the refusal
               https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/troubleshooting.html
               https://github.com/NVIDIA/nvidia-docker/issues/1034
"""

from __future__ import annotations

from collections.abc import Iterator

from holdfast import shell_words
from holdfast.analysis.logs import sightings
from holdfast.analysis.logs.wreckage import Wreckage
from holdfast.analysis.source.launch import command_line, container_sysctls, containers
from holdfast.analysis.source.source import ContainerRun, Flag, Source
from holdfast.fault import Fault
from holdfast.findings import Culprit, Diagnosis, Finding

FAULT = Fault(
    code="HOLD409",
    slug="container-flags",
    related=("container-network", "shm-too-small", "driver-mismatch", "sysctl-useless"),
)

NO_TOOLKIT = FAULT.log_pattern(
    "no-toolkit",
    r"could not select device driver .*with capabilities|[Uu]nknown (?:or invalid )?runtime "
    r"(?:name|specified):? ?\"?nvidia|unresolvable CDI devices|unknown flag: --gpus"
    r"|\"--gpus\" requires API version"
    r"|nvidia-container-runtime(?:-hook)?\\?\"?: (?:executable file not found|no such file)",
    anchors=(
        "could not select device driver",
        "invalid runtime name",
        "runtime specified nvidia",
        "unresolvable CDI devices",
        "unknown flag: --gpus",
        '"--gpus" requires API',
        "nvidia-container-runtime",
    ),
    example='docker: Error response from daemon: could not select device driver "" with '
    "capabilities: [[gpu]].",
)
HOOK = FAULT.log_pattern(
    "hook",
    # 'requirement error' is about versions: driver-mismatch.
    r"nvidia-container-cli: (?P<stage>initialization|mount|ldcache|container|device|detection) "
    r"error: (?P<why>[^\\\"]{1,200})",
    anchors="nvidia-container-cli: ",
    example="nvidia-container-cli: ldcache error: open failed: /sbin/ldconfig.real: no such file "
    "or directory: unknown.",
)
SECCOMP = FAULT.log_pattern(
    "seccomp",
    r"pthread_create.{0,80}Operation not permitted",
    anchors="pthread_create",
    example="OpenBLAS blas_thread_init: pthread_create failed for thread 1 of 8: Operation not "
    "permitted",
)
SYSCTL = FAULT.log_pattern(
    "sysctl",
    r"sysctl \"(?P<name>[\w./]+)\" (?:is )?not allowed in host (?P<namespace>\w+) namespace"
    r"|(?P<file>/proc/sys/[\w./\-]+)['\"]?: Read-only file system"
    r"|setting key \"(?P<key>[\w.]+)\": Read-only file system"
    r"|Read-only file system.*(?P<path>/proc/sys/[\w./\-]+)",
    anchors=("not allowed in host", "Read-only file system"),
    example='docker: Error response from daemon: sysctl "net.ipv4.tcp_tw_reuse" not allowed in '
    "host network namespace: unknown.",
)
NO_GPUS = FAULT.log_pattern(
    "no-gpus",
    r"The NVIDIA Driver was not detected|Could not find any nv files on this host",
    anchors=("NVIDIA Driver was not detected", "find any nv files on this host"),
    example="WARNING: The NVIDIA Driver was not detected.  GPU functionality will not be there.",
)
GPUS_GONE = FAULT.log_pattern(
    "gpus-gone",
    r"Failed to initialize NVML: Unknown Error",
    anchors="Failed to initialize NVML: Unknown",
    example="Failed to initialize NVML: Unknown Error",
)
DRIVER_ERRORS = r"(?i)version mismatch|driver not loaded|load library failed|gpu is lost|cuda error"
"""the hook only forwards the driver's error: that is another fault"""
WORKING_COMMAND = (
    "`docker run --gpus all --network=host --ipc=host --ulimit memlock=-1 --ulimit "
    "nofile=131072 IMAGE …`"
)
TEST_COMMAND = "docker run --rm --gpus all ubuntu nvidia-smi"
CASES = (
    (
        NO_TOOLKIT,
        0.95,
        (
            "the container engine cannot provide GPUs: NVIDIA's container toolkit is not "
            "installed, or not registered with the engine"
        ),
        (
            "install nvidia-container-toolkit, then `nvidia-ctk runtime configure "
            f"--runtime=docker` and restart the engine; then {WORKING_COMMAND}"
        ),
    ),
    (
        NO_GPUS,
        0.6,
        "the container was started without GPUs",
        f"start it with GPUs: {WORKING_COMMAND}",
    ),
    (
        SECCOMP,
        0.75,
        (
            "the container blocks a system call that newer C libraries use to start threads "
            "(clone3): its engine is older than the image expects"
        ),
        (
            "upgrade Docker (20.10.10 or newer) and libseccomp on the host; to confirm it first, "
            "run once with `--security-opt seccomp=unconfined`"
        ),
    ),
    (
        GPUS_GONE,
        0.7,
        "the container lost its GPU devices, as after `systemctl daemon-reload` on the host",
        (
            "restart the container, and name the devices (`--device /dev/nvidia0 …`) or use CDI, "
            "so that systemd does not remove them again"
        ),
    ),
)


@FAULT.explain
def container_flags_refused(wreckage: Wreckage) -> Diagnosis | None:
    return _sysctl_not_set(wreckage) or _nvidia_hook_failed(wreckage) or _known_error(wreckage)


def _known_error(wreckage: Wreckage) -> Diagnosis | None:
    for pattern, confidence, why, fix in CASES:
        seen = wreckage.seen(pattern)
        if seen:
            return FAULT.diagnosis(
                why,
                confidence=confidence,
                seen=seen,
                culprit=Culprit(host=seen[0].line.host, what="flags of the container"),
                fix=fix,
                next=TEST_COMMAND,
            )
    return None


def _sysctl_not_set(wreckage: Wreckage) -> Diagnosis | None:
    seen = wreckage.seen(SYSCTL)
    if not seen:
        return None
    names = ("name", "key", "file", "path")
    what = next((n for name in names if (n := sightings.field(seen, name))), "a sysctl")
    by_flag = bool(sightings.field(seen, "name"))
    why = (
        "with the host's network it has no network namespace"
        if by_flag
        else "/proc/sys is read-only inside a container"
    )
    return FAULT.diagnosis(
        f"{what} cannot be set from this container: {why}",
        confidence=0.95 if by_flag else 0.85,
        seen=seen,
        culprit=Culprit(host=seen[0].line.host, what=f"--sysctl {what}" if by_flag else what),
        fix=("remove the flag, and set it" if by_flag else "set it")
        + f" on the host if it is needed; flags that work: {WORKING_COMMAND}",
        next=shell_words.command("sysctl {}", what.removeprefix("/proc/sys/").replace("/", ".")),
    )


def _nvidia_hook_failed(wreckage: Wreckage) -> Diagnosis | None:
    """NVIDIA's hook is installed but could not add the GPUs to the container."""
    seen = wreckage.seen(HOOK)
    if not seen or sightings.saying(seen, DRIVER_ERRORS):
        return None
    why = sightings.field(seen, "why").strip(" .").removesuffix(": unknown")
    absent = "unknown device" in why
    return FAULT.diagnosis(
        f"the container requested a GPU that this machine does not have ({why})"
        if absent
        else f"NVIDIA's toolkit could not add the GPUs to the container: {why}",
        confidence=0.85 if absent else 0.7,
        seen=seen,
        culprit=Culprit(host=seen[0].line.host, what="flags of the container"),
        fix="name GPUs that `nvidia-smi -L` shows on the host, or use `--gpus all`"
        if absent
        else "check that `nvidia-smi` works on the host itself; then upgrade "
        "nvidia-container-toolkit and restart the engine",
        next="nvidia-smi -L" if absent else "nvidia-container-cli -k -d /dev/stderr info",
    )


# --- lint ----------------------------------------------------------------------------------------

SHARED_MEMORY = "/dev/shm"  # noqa: S108 - only the name
LARGER_SHM = {
    "docker": (
        "no --ipc and no --shm-size",
        "add `--ipc=host`, or `--shm-size=8g` for a private one",
    ),
    "compose": ("no ipc and no shm_size", "add `ipc: host`, or `shm_size: 8gb` for a private one"),
    "kubernetes": (
        "no volume at /dev/shm",
        "add the volume `emptyDir: {medium: Memory, sizeLimit: 8Gi}`, mounted at /dev/shm",
    ),
}
"""what is lacking, and what to add, in the words of each engine"""
SEVERAL_RANKS = ("torchrun", "deepspeed", "accelerate", "horovodrun", "mpirun")


@FAULT.lint
def sysctl_refused(source: Source) -> Iterator[Finding]:
    for container in source.containers:
        for option in container.every("sysctl"):
            why = container_sysctls.refusal(container, option)
            if not why:
                continue
            yield FAULT.error(
                f"{option.value.partition('=')[0]} cannot be set here: the container will not "
                "start",
                reason=why,
                fix="set it on the host if it is needed: "
                + _corrected_command(source, container, option),
                at=option.place,
            )


@FAULT.lint
def shm_size_unused_or_missing(source: Source) -> Iterator[Finding]:
    for container in source.containers:
        size, ipc = container.option("shm-size"), container.option("ipc")
        if size is not None and _shm_size_unused(container, size):
            yield FAULT.warning(
                f"the size {size.value or 'of /dev/shm'} has no effect: with the host's IPC "
                "namespace the container gets the host's /dev/shm",
                reason="Docker ignores the size there, and Podman documents the two as conflicting",
                fix=f"use one of the two: {_corrected_command(source, container, size)}",
                at=size.place,
            )
        elif size is None and ipc is None and _needs_large_shm(source, container):
            if containers.hides_options(source, container):
                continue
            lacking, fix = LARGER_SHM.get(container.engine, LARGER_SHM["docker"])
            yield FAULT.note(
                f"{lacking}: /dev/shm in the container has 64 MiB",
                reason="loader workers hand tensors over through it, and NCCL may use it between "
                "ranks; beyond its size a rank dies of SIGBUS",
                fix=fix,
                at=container.place,
            )


def _shm_size_unused(container: ContainerRun, option: Flag) -> bool:
    ipc = container.option("ipc")
    return option.name == "shm-size" and ipc is not None and ipc.value == "host"


def _needs_large_shm(source: Source, container: ContainerRun) -> bool:
    gpus = container.option("gpus") is not None or container.option("runtime") is not None
    mounted = [o.value for name in ("volume", "mount", "tmpfs") for o in container.every(name)]
    shared = any(SHARED_MEMORY in value for value in mounted)
    ranks = any(word.text.rpartition("/")[2] in SEVERAL_RANKS for word in container.words)
    if container.ends is not None:
        launch = containers.launch_inside(source, container)
        each = launch.flag("nproc-per-node") if launch is not None else None
        ranks = launch is not None and command_line.number(each) != 1
    if container.engine == "kubernetes" and not container.service:
        return False  # of a TrainJob: its volumes are said elsewhere
    engines = ("docker", "podman", "compose", "kubernetes")
    return gpus and ranks and not shared and container.engine in engines


def _corrected_command(source: Source, container: ContainerRun, option: Flag) -> str:
    """The user's own command without what does not work."""
    command = command_line.command_of(source, container)
    if command is None or container.engine == "compose":
        if option.name == "sysctl":
            return f"remove `{shell_words.word(option.value, 'it')}` under `sysctls:`"
        value = shell_words.word(option.value, "…")
        return f"remove `{option.name.replace('-', '_')}: {value}`"
    words = list(command.words)
    for wrong in container.options:
        if _shm_size_unused(container, wrong) or (
            wrong.name == "sysctl" and container_sysctls.refusal(container, wrong)
        ):
            words = command_line.without(words, wrong)
    line = command_line.line(words)
    return f"`{line}`" if line else f"remove `--{option.name}`"
