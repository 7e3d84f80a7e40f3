"""What nccl-tests print and write, composed from their format strings (src/util.cu, 2.19.6)."""

from __future__ import annotations

import json
from collections.abc import Sequence

HEADER = "# nccl-tests version 2.19.6 nccl-headers=22809 nccl-library=22809"
GIB = 1 << 30


def row(size: int, speed: float, wrong: float = 0, *, more: str = "") -> str:
    """`writeBenchmarkLinePreamble`, then twice `writeBenchmarkLineBody`."""
    micros = size / max(speed, 1e-3) / 1e3
    result = f"  {micros:7.0f}  {speed / 1.75:6.2f}  {speed:6.2f}  {wrong:6g}{more}"
    start = f"{size:12d}  {size // 4:12d}  {'float':>8}  {'sum':>6}  {'    -1':>6}"
    return start + result + result


def text(
    rows: Sequence[str],
    *,
    gpu: str = "NVIDIA H100 80GB HBM3",
    nodes: Sequence[str] = ("node-a",),
    ranks: int = 8,
    wrong: int = 0,
    average: float | None = 123.4,
) -> tuple[str, ...]:
    """One process that drives all GPUs of a node, or one for each with MPI; no footer without an
    average: it did not end."""
    each = ranks if len(nodes) == 1 else 1
    devices = [
        f"#  Rank {rank:2d} Group  0 Pid {4000 + rank:6d} on {nodes[rank % len(nodes)]:>10} device "
        f"{rank // len(nodes):2d} [0000:{rank:02x}:00] {gpu}"
        for rank in range(ranks)
    ]
    footer = [
        f"# {'Out of bounds values':<20} : {wrong} {'FAILED' if wrong else 'OK'}",
        f"# {'Avg bus bandwidth':<20} : {average or 0:g} ",
        "#",
    ]
    settings = (
        f"# nThread 1 nGpus {each} minBytes 8 maxBytes 8589934592 step: 2(factor) warmup iters: 1 "
        "iters: 20 agg iters: 1 validation: 1 graph: 0 unalign: 0"
    )
    return (
        HEADER,
        "# Collective test starting: all_reduce_perf",
        settings,
        "#",
        "# Using devices",
        *devices,
        "#",
        *rows,
        *(footer if average is not None else ()),
    )


def document(
    sizes: Sequence[tuple[int, float, float | None]],
    *,
    gpu: str = "NVIDIA H100 80GB HBM3",
    gpus: int = 8,
    wrong: int = 0,
) -> bytes:
    """What `-J` writes, with the environment of the user who ran it; without MPI only the first
    device is listed."""
    results = [
        {
            "size": size,
            "count": size // 4,
            "type": "float",
            "redop": "sum",
            "root": "    -1",
            "out_of_place": {"time": 1.0, "alg_bw": speed / 2, "bus_bw": speed, "nwrong": bad},
            "in_place": {"time": 1.0, "alg_bw": speed / 2, "bus_bw": speed, "nwrong": bad},
            "actual_iterations": 20,
            "experiment_name": "all_reduce",
        }
        for size, speed, bad in sizes
    ]
    device = {"rank": 0, "group": 0, "pid": 1, "hostname": "node-a", "device": 0}
    return json.dumps(
        {
            "version": 3,
            "start_time": "2026-11-16 10:00:00",
            "args": ["all_reduce_perf"],
            "env": ["HF_TOKEN=hf_secret", "PATH=/usr/bin"],
            "nccl_version": 22809,
            "config": {
                "nthreads": 1,
                "ngpus": gpus,
                "minimum_bytes": 8,
                "maximum_bytes": sizes[-1][0],
                "step_factor": 2,
                "validation": 1,
                "blocking_collectives": "false",
                "devices": [{**device, "device_hex": "0000:1b:00", "device_info": gpu}],
            },
            "results": results,
            "out_of_bounds": {"count": wrong, "okay": "false" if wrong else "true"},
            "average_bus_bandwidth": {"bandwidth": 1.0, "okay": "unchecked"},
            "errors": [""],
            "end_time": "2026-11-16 10:01:00",
        },
        separators=(",", ":"),
    ).encode()
