"""The container was started with flags that do not work, or without those it needs.

What you see   The container does not start: `could not select device driver "" with capabilities:
               [[gpu]]`, `unknown or invalid runtime name: nvidia`, `sysctl "net.…" not allowed in
               host network namespace`. Or it starts without GPUs: `The NVIDIA Driver was not
               detected`. Or it loses them after a while: `Failed to initialize NVML: Unknown
               Error`. Or `Read-only file system` under /proc/sys.
Why            GPUs reach a container through NVIDIA's container toolkit, which must be installed
               and known to the engine. net.* sysctls belong to a network namespace, and with
               `--network=host` the container has none of its own. `--shm-size` has no effect with
               `--ipc=host`. On systemd hosts `systemctl daemon-reload` can take the GPU devices
               away from containers that were started without naming them.
How to be sure `docker run --rm --gpus all IMAGE nvidia-smi` shows whether GPUs get in at all;
               `docker inspect` shows the flags in force.
Fix            A line that works for one machine or several:
               `docker run --gpus all --network=host --ipc=host --ulimit memlock=-1 --ulimit
               nofile=131072 IMAGE …`; sysctls on the host itself. For lost devices: name them
               (`--device /dev/nvidia0 …`) or use CDI, and restart the container.
Sources        https://docs.docker.com/reference/cli/docker/container/run/ (--gpus, --sysctl, --ipc)
               opencontainers/runc libcontainer/configs/validate/validator.go: the refusal
               https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/troubleshooting.html
               https://github.com/NVIDIA/nvidia-docker/issues/1034
"""

from __future__ import annotations

from holdfast.fault import Fault
from holdfast.inference import sighted
from holdfast.model import Culprit, Diagnosis
from holdfast.remains.nouns import Wreckage

FAULT = Fault(code="HOLD409", slug="container-flags")

NO_TOOLKIT = FAULT.wording(
    "no-toolkit",
    r"could not select device driver .*with capabilities|[Uu]nknown (?:or invalid )?runtime "
    r"(?:name|specified):? ?\"?nvidia|nvidia-container-cli: (?:initialization|mount|ldcache) error"
    r"|unresolvable CDI devices",
    anchors=(
        "could not select device driver",
        "invalid runtime name",
        "runtime specified nvidia",
        "nvidia-container-cli: ",
        "unresolvable CDI devices",
    ),
    example='docker: Error response from daemon: could not select device driver "" with '
    "capabilities: [[gpu]].",
)
SYSCTL = FAULT.wording(
    "sysctl",
    r"sysctl \"(?P<name>[\w./]+)\" (?:is )?not allowed in host (?P<namespace>\w+) namespace"
    r"|(?P<file>/proc/sys/[\w./\-]+)['\"]?: Read-only file system"
    r"|setting key \"(?P<key>[\w.]+)\": Read-only file system"
    r"|Read-only file system.*(?P<path>/proc/sys/[\w./\-]+)",
    anchors=("not allowed in host", "Read-only file system"),
    example='docker: Error response from daemon: sysctl "net.ipv4.tcp_tw_reuse" not allowed in '
    "host network namespace: unknown.",
)
NO_GPUS = FAULT.wording(
    "no-gpus",
    r"The NVIDIA Driver was not detected",
    anchors="NVIDIA Driver was not detected",
    example="WARNING: The NVIDIA Driver was not detected.  GPU functionality will not be there.",
)
GPUS_GONE = FAULT.wording(
    "gpus-gone",
    r"Failed to initialize NVML: Unknown Error",
    anchors="Failed to initialize NVML: Unknown",
    example="Failed to initialize NVML: Unknown Error",
)
WORKS = (
    "`docker run --gpus all --network=host --ipc=host --ulimit memlock=-1 --ulimit "
    "nofile=131072 IMAGE …`"
)
TRY = "docker run --rm --gpus all ubuntu nvidia-smi"
CASES = (
    (
        NO_TOOLKIT,
        0.95,
        (
            "the container engine cannot hand out GPUs: NVIDIA's container toolkit is missing, or "
            "the engine does not know it"
        ),
        (
            "install nvidia-container-toolkit, then `nvidia-ctk runtime configure "
            f"--runtime=docker` and restart the engine; then {WORKS}"
        ),
    ),
    (
        NO_GPUS,
        0.6,
        "the container was started without GPUs",
        f"start it with them: {WORKS}",
    ),
    (
        GPUS_GONE,
        0.7,
        "the container has lost its GPU devices, as after `systemctl daemon-reload` on the host",
        (
            "restart the container, and name the devices (`--device /dev/nvidia0 …`) or use CDI, "
            "so that systemd does not take them away again"
        ),
    ),
)


@FAULT.recognise
def the_flags_do_not_work(wreckage: Wreckage) -> Diagnosis | None:
    seen = wreckage.seen(SYSCTL)
    if seen:
        names = ("name", "key", "file", "path")
        what = next((n for name in names if (n := sighted.field(seen, name))), "a sysctl")
        refused = bool(sighted.field(seen, "name"))
        return FAULT.diagnosis(
            f"{what} cannot be set from this container: "
            + (
                "with the host's network it has no network settings of its own"
                if refused
                else "/proc/sys is read-only inside a container"
            ),
            confidence=0.95 if refused else 0.85,
            seen=seen,
            culprit=Culprit(host=seen[0].line.host, what=f"--sysctl {what}" if refused else what),
            fix=f"leave it out of the flags and set it on the host if it is needed at all: {WORKS}",
            next=f"sysctl {what.removeprefix('/proc/sys/').replace('/', '.')}",
        )
    for signature, confidence, why, fix in CASES:
        seen = wreckage.seen(signature)
        if seen:
            return FAULT.diagnosis(
                why,
                confidence=confidence,
                seen=seen,
                culprit=Culprit(host=seen[0].line.host, what="flags of the container"),
                fix=fix,
                next=TRY,
            )
    return None
