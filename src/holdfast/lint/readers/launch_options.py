"""Which options the launchers and engines have, and which of them take a value.

Read from torch 2.13.0 (torch/distributed/run.py, launch.py), Accelerate 1.15.0
(commands/launch.py), DeepSpeed 0.19.8 (launcher/runner.py), Horovod 0.28.1 (runner/launch.py),
and the manuals of Open MPI 4 and 5, MPICH's hydra, Slurm 24 and docker 27 (podman has the same).
"""

from __future__ import annotations

from holdfast.lint.readers.arguments import Options, names

TORCHRUN = Options(
    values=names(
        "nnodes nproc-per-node rdzv-backend rdzv-endpoint rdzv-id rdzv-conf max-restarts "
        "monitor-interval start-method event-log-handler role log-dir redirects tee "
        "local-ranks-filter duplicate-stdout-filters duplicate-stderr-filters node-rank "
        "master-addr master-port local-addr logs-specs numa-binding signals-to-handle "
        "shutdown-timeout"
    ),
    switches=names("help standalone module no-python run-path virtual-local-rank use-env"),
    shorts={"h": "help", "r": "redirects", "t": "tee", "m": "module"},
    abbreviates=True,
)
ACCELERATE = Options(
    values=names(
        "config-file mixed-precision num-processes num-machines num-cpu-threads-per-process "
        "dynamo-backend dynamo-mode gpu-ids machine-rank main-process-ip main-process-port tee "
        "log-dir role rdzv-backend rdzv-conf max-restarts monitor-interval vm env "
        "main-training-function deepspeed-config-file zero-stage gradient-accumulation-steps "
        "gradient-clipping deepspeed-hostfile mpirun-hostfile"
    ),
    switches=names(
        "help quiet cpu multi-gpu tpu enable-cpu-affinity dynamo-use-fullgraph "
        "dynamo-use-dynamic dynamo-use-regional-compilation use-deepspeed use-fsdp "
        "use-parallelism-config use-megatron-lm same-network module no-python tpu-cluster "
        "no-tpu-cluster tpu-use-sudo downcast-bf16 fp8-use-autocast-during-eval debug use-xpu "
        "use-mps-device ipex"
    ),
    shorts={"h": "help", "q": "quiet", "t": "tee", "m": "module"},
    others_take_values=True,
)
DEEPSPEED = Options(
    values=names(
        "hostfile include exclude num-nodes min-elastic-nodes max-elastic-nodes num-gpus "
        "master-port master-addr node-rank launcher launcher-args enable-each-rank-log "
        "autotuning bind-core-list ssh-port venv-script log-level"
    ),
    switches=names(
        "help module no-python no-local-rank no-ssh no-ssh-check force-multi save-pid "
        "bind-cores-to-rank quiet elastic-training"
    ),
    shorts={"h": "help", "H": "hostfile", "i": "include", "e": "exclude", "q": "quiet"},
    aliases={"num-accelerators": "num-gpus"},
    abbreviates=True,
)
HOROVODRUN = Options(
    values=names(
        "num-proc start-timeout network-interfaces network-interface output-filename config-file "
        "ssh-port ssh-identity-file fusion-threshold-mb cycle-time-ms cache-capacity "
        "autotune-log-file autotune-warmup-samples autotune-steps-per-sample "
        "autotune-bayes-opt-max-samples autotune-gaussian-process-noise min-num-proc max-num-proc "
        "slots-per-host elastic-timeout reset-limit timeline-filename "
        "stall-check-warning-time-seconds stall-check-shutdown-time-seconds mpi-args binding-args "
        "num-nccl-streams thread-affinity gloo-timeout-seconds log-level hosts hostfile "
        "host-discovery-script"
    ),
    switches=names(
        "version check-build disable-cache verbose hierarchical-allreduce "
        "no-hierarchical-allreduce hierarchical-allgather no-hierarchical-allgather "
        "torus-allreduce no-torus-allreduce autotune no-autotune timeline-mark-cycles "
        "no-timeline-mark-cycles no-stall-check stall-check mpi-threads-disable "
        "no-mpi-threads-disable tcp log-with-timestamp log-without-timestamp "
        "prefix-output-with-timestamp log-hide-timestamp no-log-hide-timestamp gloo mpi jsrun"
    ),
    pairs=names("blacklist-cooldown-range"),
    shorts={"p": "ssh-port", "i": "ssh-identity-file", "H": "hosts", "v": "version"},
    aliases={
        "np": "num-proc",
        "min-np": "min-num-proc",
        "max-np": "max-num-proc",
        "cb": "check-build",
        "prefix-timestamp": "prefix-output-with-timestamp",
    },
    single_dash=True,
    abbreviates=True,
)
MPI_PROGRAMS = ("mpirun", "mpiexec", "orterun", "prun", "prterun", "mpiexec.hydra")
MPIRUN = Options(
    values=names(
        "np hostfile host npernode npersocket map-by rank-by bind-to rankfile x wdir "
        "output-filename prefix path app slot-list cpu-set cpus-per-proc cpus-per-rank am tune "
        "default-hostfile timeout stdin xterm display output report-uri ompi-server "
        "personality preload-files genvlist envlist genvnone hosts ppn bootstrap launcher iface "
        "configfile profile debug-daemons-file tv-file runtime-options dvm bind-to-obj"
    ),
    switches=names(
        "allow-run-as-root oversubscribe nooversubscribe no-oversubscribe tag-output "
        "timestamp-output display-map display-allocation display-topo display-devel-map "
        "report-bindings verbose quiet version help use-hwthread-cpus do-not-launch "
        "enable-recovery disable-recovery continuous nolocal bynode byslot bycore bysocket "
        "pernode persocket bind-to-core bind-to-none bind-to-socket leave-session-attached "
        "merge-stderr-to-stdout get-stack-traces debug-daemons novm genvall envall "
        "prepend-rank print-all-exitcodes do-not-resolve index-argv-by-rank parsable tv"
    ),
    pairs=names("mca omca gmca prtemca pmixmca genv env"),
    shorts={
        "n": "np", "c": "np", "H": "host", "N": "npernode", "f": "hostfile", "x": "x",
        "v": "verbose", "q": "quiet", "h": "help", "V": "version", "l": "prepend-rank",
    },
    aliases={
        "n": "np", "c": "np", "machinefile": "hostfile", "N": "npernode", "H": "host",
        "ppn": "npernode", "hosts": "host", "wd": "wdir", "perhost": "npernode",
    },
    single_dash=True,
)  # fmt: skip
SRUN = Options(
    switches=names(
        "label unbuffered overlap overcommit no-kill preserve-env quiet verbose multi-prog "
        "disable-status hold contiguous help usage version requeue no-requeue spread-job whole "
        "test-only exact parsable oversubscribe share debugger-test use-min-nodes reboot "
        "external-launcher no-shell"
    ),
    attached=names(
        "exclusive pty immediate propagate nice get-user-env resv-ports x11 kill-on-bad-exit wait"
    ),
    shorts={
        "A": "account", "B": "extra-node-info", "b": "begin", "c": "cpus-per-task",
        "C": "constraint", "d": "dependency", "D": "chdir", "e": "error", "F": "nodefile",
        "G": "gpus", "i": "input", "J": "job-name", "L": "licenses", "m": "distribution",
        "M": "clusters", "n": "ntasks", "N": "nodes", "o": "output", "p": "partition", "q": "qos",
        "r": "relative", "S": "core-spec", "t": "time", "T": "threads", "w": "nodelist",
        "x": "exclude", "a": "array", "l": "label", "u": "unbuffered", "O": "overcommit",
        "E": "preserve-env", "Q": "quiet", "v": "verbose", "X": "disable-status", "H": "hold",
        "s": "oversubscribe", "h": "help", "V": "version", "k": "no-kill", "W": "wait-seconds",
        "K": "kill-on-bad-exit", "I": "immediate",
    },
    values=names(
        "account extra-node-info begin cpus-per-task constraint dependency chdir error nodefile "
        "gpus input job-name licenses distribution clusters ntasks nodes output partition qos "
        "relative core-spec time threads nodelist exclude array wait-seconds ntasks-per-node "
        "gpus-per-node gpus-per-task gres export mem mem-per-cpu mem-per-gpu signal mpi "
        "cpu-bind gpu-bind cpus-per-gpu wrap time-min reservation comment mail-type mail-user "
        "het-group container-image container-mounts container-name container-workdir container-env "
        "threads-per-core ntasks-per-gpu ntasks-per-socket open-mode switches network"
    ),
    others_take_values=True,
    abbreviates=True,
)  # fmt: skip
DOCKER_RUN = Options(
    switches=names(
        "detach interactive tty rm privileged init read-only no-healthcheck oom-kill-disable "
        "publish-all disable-content-trust sig-proxy quiet help replace rmi tls-verify "
        "no-hosts env-host http-proxy read-only-tmpfs no-hostname all latest use-api-socket"
    ),
    values=names(
        "network ipc shm-size sysctl ulimit gpus env env-file volume mount publish user pid "
        "cap-add cap-drop device runtime name workdir entrypoint hostname memory cpus cpuset-cpus "
        "security-opt add-host label expose dns restart tmpfs platform pull group-add uts "
        "log-driver log-opt stop-timeout stop-signal cidfile attach annotation cgroupns userns "
        "memory-swap pids-limit link ip cpu-shares device-cgroup-rule"
    ),
    shorts={
        "d": "detach", "i": "interactive", "t": "tty", "P": "publish-all", "q": "quiet",
        "e": "env", "v": "volume", "p": "publish", "u": "user", "w": "workdir", "h": "hostname",
        "l": "label", "m": "memory", "c": "cpu-shares", "a": "attach",
    },
    aliases={"net": "network"},
    others_take_values=True,
    before_a_script=False,
)  # fmt: skip
APPTAINER = Options(
    switches=names(
        "nv nvccli rocm contain containall cleanenv writable writable-tmpfs no-home fakeroot "
        "userns pid ipc uts net no-privs keep-privs compat no-init unsquash quiet no-eval "
        "disable-cache no-https sparsefs underlay passphrase"
    ),
    shorts={
        "B": "volume", "e": "cleanenv", "c": "contain", "C": "containall", "w": "writable",
        "f": "fakeroot", "u": "userns", "p": "pid", "i": "ipc", "H": "home", "W": "workdir",
        "S": "scratch", "o": "overlay", "n": "net",
    },
    values=names(
        "volume home workdir scratch overlay env env-file network pwd cwd app security hostname "
        "network-args mount dns add-caps drop-caps"
    ),
    aliases={"bind": "volume"},
    others_take_values=True,
    before_a_script=False,
)  # fmt: skip
SSH = Options(
    values=frozenset("BbcDEeFIiJLlmOoPpQRSWw"),
    switches=frozenset("46AaCfGgKkMNnqsTtVvXxYy"),
    before_a_script=False,
)
PDSH = Options(
    values=frozenset("wxgGRtuflSIMN") - {"S", "N"},
    switches=frozenset("SNbaidvqhLV"),
    before_a_script=False,
)
PYTHON = Options(
    values=frozenset(["W", "X", "check-hash-based-pycs"]),
    switches=frozenset("bBdEhiIOPqsSuvVxmc"),
)
"""`-m` and `-c` end its options: what follows is the module, or the program itself"""
