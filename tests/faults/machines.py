"""A healthy machine to start from; a test changes the one fact it is about."""

from __future__ import annotations

from typing import Any, get_type_hints

import msgspec

from holdfast.analysis import machine as f
from tests.faults import made_gpus

GIB = 1 << 30


def a_plan(**changes: Any) -> f.Plan:
    """One machine, four ranks, torchrun's default port."""
    plan = f.Plan(
        nproc=4,
        min_nodes=1,
        max_nodes=1,
        port=29500,
        port_origin="default",
        master_addr="",
        master_origin="",
        node_rank=None,
        rdzv_backend="",
        rdzv_endpoint="",
        checkpoint_folders=(),
        log_folder="/home/kim/runs",
        launcher_pid=None,
        environment={"HOME": "/home/kim", "PATH": "/usr/bin"},
    )
    return msgspec.structs.replace(plan, **changes)


def a_process(**changes: Any) -> f.Process:
    process = f.Process(pid=4711, command="python train.py", user="kim", age=7200.0, parent=4700)
    return msgspec.structs.replace(process, **changes)


def a_port(**changes: Any) -> f.PortFacts:
    """A port that both families can bind."""
    port = f.PortFacts(
        port=29500,
        binds=(f.Bind(family="IPv6", error=""), f.Bind(family="IPv4", error="")),
        listeners=(),
        others=(),
        store=None,
    )
    return msgspec.structs.replace(port, **changes)


def a_connection(**changes: Any) -> f.Connection:
    connection = f.Connection(
        local="[::]:29500",
        peer="[::]:0",
        state="LISTEN",
        seconds_left=None,
        user="kim",
        owner=a_process(),
    )
    return msgspec.structs.replace(connection, **changes)


def limits(**changes: Any) -> f.Limits:
    healthy = f.Limits(
        pid=100,
        nofile=f.Limit(soft=1048576, hard=1048576),
        memlock=f.Limit(soft=None, hard=None),
        nproc=f.Limit(soft=None, hard=None),
        stack=f.Limit(soft=8 << 20, hard=None),
        ipc_lock=False,
        sys_resource=False,
    )
    return msgspec.structs.replace(healthy, **changes)


def an_interface(name: str = "eth0", ip: str = "10.0.0.5", **changes: Any) -> f.Interface:
    interface = f.Interface(
        name=name,
        state="up",
        running=True,
        kind="physical",
        speed=25000,
        mtu=1500,
        carrier_changes=1,
        addresses=(f.Address(ip=ip, prefix=24),),
    )
    return msgspec.structs.replace(interface, **changes)


def a_loopback() -> f.Interface:
    return f.Interface(
        name="lo",
        state="unknown",
        running=True,
        kind="loopback",
        speed=None,
        mtu=65536,
        carrier_changes=0,
        addresses=(f.Address(ip="127.0.0.1", prefix=8), f.Address(ip="::1", prefix=128)),
    )


def a_port_of(
    device: str, number: int = 1, state: str = "ACTIVE", link_layer: str = "InfiniBand"
) -> f.RdmaPort:
    return f.RdmaPort(device=device, number=number, state=state, link_layer=link_layer)


def a_folder(**changes: Any) -> f.Folder:
    folder = f.Folder(
        path="/home/kim/ckpts",
        purpose="checkpoints",
        exists=True,
        looked_at="/home/kim/ckpts",
        is_directory=True,
        filesystem="ext4",
        read_only=False,
        size=1000 * GIB,
        free=500 * GIB,
        inodes=10_000_000,
        inodes_free=9_000_000,
        write_error="",
    )
    return msgspec.structs.replace(folder, **changes)


def settings(origin: str = "environment", **values: str) -> tuple[f.Setting, ...]:
    return tuple(f.Setting(name=n, value=v, origin=origin) for n, v in values.items())


def software(*, nccl: str) -> f.Software:
    """With NCCL of this version; its file does not tell where it is ''."""
    library = f.NcclLibrary(
        path="/venv/nvidia/nccl/lib/libnccl.so.2", version=nccl, origin="python package"
    )
    return f.Software(
        python="3.11.7",
        executable="/usr/bin/python3",
        torch="2.13.0",
        torch_cuda="13.0",
        gloo="built into torch 2.13.0",
        nccl=(library,),
        packages={},
    )


def a_machine(plan: f.Plan | None = None, **changes: Any) -> f.MachineFacts:
    """A machine on which nothing is wrong, and everything could be read."""
    machine = f.MachineFacts(
        plan=plan or a_plan(),
        host="node-a",
        settings=(),
        port=a_port(),
        port_ranges=f.PortRanges(
            ephemeral_low=32768, ephemeral_high=60999, reserved=(), first_unprivileged=1024
        ),
        limits=limits(),
        launcher_limits=None,
        process_room=f.ProcessRoom(
            user_threads=200, pids_max=None, pids_current=None, threads_max=100_000, pid_max=4194304
        ),
        shm=f.Shm(size=64 * GIB, free=60 * GIB, tried=1 << 20, error=""),
        interfaces=(a_loopback(), an_interface()),
        routes=(
            f.Route(interface="eth0", destination="0.0.0.0/0", gateway="10.0.0.1", metric=100),
            f.Route(interface="eth0", destination="10.0.0.0/24", gateway="", metric=100),
        ),
        own_name=f.Resolution(name="node-a", addresses=("10.0.0.5",), error="", seconds=0.001),
        own_fqdn="node-a.cluster.example",
        master_name=None,
        master_reach=None,
        loopback=(
            f.Reach(address="127.0.0.1", port=20001, error="", seconds=0.0001),
            f.Reach(address="::1", port=20002, error="", seconds=0.0001),
        ),
        container=f.Container(
            kind="", sign="no sign of a container", rootless=None, network="host", ipc="host"
        ),
        cgroup=f.Cgroup(
            version=2,
            path="/user.slice",
            cpu_quota=None,
            throttled_share=None,
            memory_limit=None,
            memory_used=GIB,
            oom_kills=0,
            memory_pressure=0.0,
            cpu_pressure=0.0,
        ),
        load=f.HostLoad(
            cpus_online=64,
            cpus_usable=64,
            load1=0.5,
            memory_total=512 * GIB,
            memory_available=480 * GIB,
            swap_total=0,
            swap_used=0,
            busy=(),
        ),
        security=f.Security(selinux="absent", denials=(), firewall="none seen", rules=0),
        clock=f.ClockSync(synchronised=True, max_error=0.02),
        folders=(a_folder(path="/home/kim/runs", looked_at="/home/kim", purpose="logs"),),
        checkpoints=(),
        rendezvous_files=(),
        kernel_log=(),
        leftovers=f.Leftovers(orphans=(), segments=(), stuck=()),
        software=software(nccl="2.29.7"),
        variable_search=f.VariableSearch(searched=(), prefixes=(), found={}),
        rdma_devices=(),
        rdma_ports=(),
        accelerators=("/dev/nvidia0", "/dev/nvidia1", "/dev/nvidia2", "/dev/nvidia3"),
        rdma_cards=(),
        nvidia=made_gpus.nvidia(),
        cuda=made_gpus.cuda(),
        fabric=made_gpus.no_fabric(),
        rocm=f.RocmFacts(gpus=(), driver=""),
        pci=made_gpus.pci(),
        gpu_direct=f.GpuDirect(peermem="", dmabuf=True, kernel="6.8.0"),
        smoke=None,
    )
    return msgspec.structs.replace(machine, **changes)


def an_unreadable_machine(plan: f.Plan | None = None) -> f.MachineFacts:
    """A machine on which nothing could be read at all."""
    unread = f.Unread(why="the test took it away")
    fields = set(get_type_hints(f.MachineFacts)) - {"plan", "host"}
    return a_machine(plan, **dict.fromkeys(fields, unread))
