"""A real NCCL against our simulation of its choice of interfaces, in namespaces made for it.

    python -m tools.nccl_choice [--nccl LIBRARY …] [--only WORD …] [--seconds 280] [--no-gpu]
                                [--made-up 60 --seed 7]

Needs root on Linux; every host is a network namespace with veth pairs, gone with its process.
Without a GPU any libnccl.so.2 is asked for its bootstrap's choice, which needs none: unpack the
wheels of several versions (`pip download --no-deps nvidia-nccl-cu12==2.27.7`) and name them. With a
GPU a communicator of one rank is made as well, so that the socket transport says what it takes.
Without --nccl: the library that torch would load here. --made-up adds random hosts. Prints one line
for each case and exits 1 when one of them differs.

Where nothing can be installed, holdfast, msgspec and pyroute2 come from unpacked wheels:

    pip download --no-deps --only-binary :all: --python-version 3.12 -d w msgspec pyroute2
    for f in w/*.whl; do python3 -m zipfile -e $f carried; done
    PYTHONPATH=src:carried python3 -m tools.nccl_choice
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from holdfast.analysis.machine import addresses, nccl_choice
from holdfast.analysis.machine.interface_choice import InterfaceChoice, Taken
from holdfast.analysis.machine.nccl_choice import NcclSettings
from holdfast.check.plan import Flags, make_plan
from holdfast.check.readers.software import read_software
from tools.made_hosts import build, in_own_namespace, interfaces_here
from tools.nccl_choice_cases import HOSTS, MadeHost, made_up

ASK = Path(__file__).with_name("ask_nccl.py")
ANSWER_SECONDS = 20.0

BOOTSTRAP = re.compile(r"Bootstrap ?: Using (\S+)<\d+>")
SOCKETS = re.compile(r"NET/Socket ?: Using(( \[\d+\]\S+<\d+>)+)")
FAILURE = re.compile(r"NCCL WARN (.*(?:interface found|Invalid NCCL_COMM_ID)[^,\n]*)")


class Answer(NamedTuple):
    """What NCCL printed; '' where it did not come so far."""

    version: str
    bootstrap: str
    sockets: str
    failure: str


def main() -> int:
    parser = argparse.ArgumentParser(description="NCCL's choice of interfaces, real and simulated")
    parser.add_argument("--nccl", nargs="+", default=[], metavar="LIBRARY")
    parser.add_argument("--only", nargs="+", default=[], metavar="WORD", help="hosts to make")
    parser.add_argument("--seconds", type=float, default=280.0, help="stop after that time")
    parser.add_argument("--no-gpu", action="store_true", help="ask for the bootstrap only")
    parser.add_argument("--made-up", type=int, default=0, help="add so many random hosts")
    parser.add_argument("--seed", type=int, default=1, help="of the random hosts")
    parser.add_argument("--host", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--wire", type=int, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    hosts = (*HOSTS, *made_up(asked.made_up, asked.seed))
    libraries = asked.nccl or installed()
    gpu = os.path.exists("/dev/nvidia0") and not asked.no_gpu
    if asked.host is not None:
        ask_in_host(hosts[asked.host], asked.wire, libraries, gpu=gpu)
        return 0
    if os.geteuid() != 0 or not libraries:
        print("needs root, and a libnccl.so.2: name one with --nccl", file=sys.stderr)
        return 2
    print(f"GPU: {'yes' if gpu else 'no, bootstrap only'}; {', '.join(libraries)}", flush=True)
    deadline = time.monotonic() + asked.seconds
    chosen = {
        number: host
        for number, host in enumerate(hosts)
        if not asked.only or any(word in host.name for word in asked.only)
    }
    return compare_all(chosen, deadline)


def installed() -> list[str]:
    plan = make_plan(Flags(), os.environ, accelerators=0)
    return [one.path for one in read_software(plan).nccl[:1]]


def compare_all(hosts: dict[int, MadeHost], deadline: float) -> int:
    counts = {"agrees": 0, "differs": 0, "no answer": 0}
    for number, host in hosts.items():
        left = deadline - time.monotonic()
        if left <= 0:
            print(f"not asked for lack of time: {host.name}", flush=True)
            counts["no answer"] += 1
            continue
        for row in rows_of(number, host, left):
            counts[row["verdict"]] += 1
            print(
                f"{row['verdict']:9} | {row['version']:7} | {row['what']:9} | {row['host']} | "
                f"{row['setting'] or '-'} | ours: {row['ours']} | NCCL: {row['nccl']}",
                flush=True,
            )
    print(", ".join(f"{count} {verdict}" for verdict, count in counts.items()), flush=True)
    return 1 if counts["differs"] or not counts["agrees"] else 0


def rows_of(number: int, made: MadeHost, seconds: float) -> Iterator[dict[str, Any]]:
    """One host: a namespace for its interfaces, and one for the other ends of its cables."""
    wire = subprocess.Popen(["sleep", "600"], preexec_fn=in_own_namespace)  # noqa: PLW1509
    command = [sys.executable, "-m", "tools.nccl_choice", *sys.argv[1:]]
    command += ["--host", str(number), "--wire", str(wire.pid)]
    host = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, preexec_fn=in_own_namespace)  # noqa: PLW1509
    try:
        out, _ = host.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        host.kill()
        out, _ = host.communicate()
    finally:
        wire.kill()
        wire.wait()
    rows = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    yield from rows
    if host.returncode != 0 or not rows:
        lost = {"host": made.name, "setting": "", "version": "", "what": "host", "ours": ""}
        yield {**lost, "nccl": f"ended with {host.returncode}", "verdict": "no answer"}


# --- inside the namespace of a host ---------------------------------------------------------------


def ask_in_host(host: MadeHost, wire: int, libraries: Sequence[str], *, gpu: bool) -> None:
    build(host, wire)
    for library in libraries:
        for setting in host.settings:
            before = interfaces_here()
            answer = ask(library, setting, comm=gpu)
            if before != interfaces_here():  # an IPv6 address arrived meanwhile
                before, answer = interfaces_here(), ask(library, setting, comm=gpu)
            said = NcclSettings(
                version=answer.version,
                ifname=setting.get("NCCL_SOCKET_IFNAME", ""),
                family=setting.get("NCCL_SOCKET_FAMILY", ""),
                comm_id=setting.get("NCCL_COMM_ID"),
            )
            chosen = nccl_choice.bootstrap_choice(before, said)
            row(host, setting, answer, "bootstrap", chosen, answer.bootstrap)
            if gpu and answer.bootstrap:
                every = nccl_choice.socket_choice(before, said)
                row(host, setting, answer, "sockets", every, answer.sockets)


def row(
    host: MadeHost,
    setting: dict[str, str],
    answer: Answer,
    what: str,
    ours: InterfaceChoice,
    nccl: str,
) -> None:
    expected = " ".join(printed(one) for one in ours.taken)
    if not nccl and not answer.failure:
        verdict = "no answer"
    else:
        verdict = "agrees" if expected == nccl and bool(ours.error) == (not nccl) else "differs"
    line = {
        "host": host.name,
        "setting": " ".join(f"{name}={value}" for name, value in setting.items()),
        "version": answer.version,
        "what": what,
        "ours": expected or ours.error,
        "nccl": nccl or answer.failure or "nothing",
        "verdict": verdict,
    }
    print(json.dumps(line), flush=True)


def printed(one: Taken) -> str:
    """As NCCL prints it: getnameinfo adds the scope of a link-local address."""
    scope = f"%{one.name}" if addresses.is_link_local(one.address) else ""
    return f"{one.name}:{one.address}{scope}"


def ask(library: str, setting: dict[str, str], *, comm: bool) -> Answer:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("NCCL_")}
    debug = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,BOOTSTRAP,NET"}
    # -u makes C's stdout unbuffered too: what NCCL printed is kept when it has to be ended.
    command = [sys.executable, "-u", str(ASK), library, *["--comm"] * comm]
    try:
        done = subprocess.run(
            command,
            env=kept | debug | setting,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=ANSWER_SECONDS,
            check=False,
        )
        out = done.stdout.decode(errors="replace")
    except subprocess.TimeoutExpired as late:
        out = (late.stdout or b"").decode(errors="replace")
    version = re.search(r"version (\d+)(\d\d)(\d\d)$", out, re.MULTILINE)
    bootstrap, sockets, failure = BOOTSTRAP.search(out), SOCKETS.search(out), FAILURE.search(out)
    return Answer(
        version=".".join(str(int(part)) for part in version.groups()) if version else "",
        bootstrap=bootstrap[1] if bootstrap else "",
        sockets=" ".join(re.findall(r"\[\d+\](\S+)<\d+>", sockets[1])) if sockets else "",
        failure=failure[1] if failure else "",
    )


if __name__ == "__main__":
    sys.exit(main())
