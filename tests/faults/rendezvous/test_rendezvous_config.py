from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.analysis.machine import MachineFacts, Plan, Resolution, Unread
from holdfast.analysis.nodes import NodesFacts, StoreBelief
from holdfast.faults.rendezvous.rendezvous_config import _will_host_store
from tests.analysis.logs.patterns.made import wreckage
from tests.faults import between
from tests.faults.machines import a_machine, a_plan
from tests.faults.made_nodes import on_node, some_nodes
from tests.faults.rendezvous.launch_scripts_rendezvous_config import CASES
from tests.faults.table import (
    check_table,
    explain_table,
    lint_table,
    not_applicable,
    passes_over,
    recognises,
    silent,
    skips,
    speaks,
)


def c10d(endpoint: str, **changes: Any) -> Plan:
    two = {"min_nodes": 2, "max_nodes": 2, "rdzv_backend": "c10d", "rdzv_endpoint": endpoint}
    return a_plan(**(two | changes))


def own(*found: str) -> Resolution:
    return Resolution(name="node-a", addresses=found, error="", seconds=0.001)


test_check = check_table(
    "rendezvous-config",
    speaks(
        "error",
        a_machine(a_plan(min_nodes=1, max_nodes=4, rdzv_backend="static")),
        saying=["1 to 4 nodes", "waits for all 4", "--nnodes 1:4 --rdzv-backend c10d"],
    ),
    speaks(
        "warning",  # the command line, which we do not see, may name another backend
        a_machine(a_plan(min_nodes=1, max_nodes=4)),
        saying=["torchrun's default, unless your command sets another"],
    ),
    speaks(
        "error",
        a_machine(a_plan(max_nodes=2, min_nodes=2, rdzv_endpoint="node-b")),
        saying=["has no port", "--rdzv-endpoint node-b:29500"],
    ),
    speaks(
        "warning",
        a_machine(c10d("10.0.0.5:29400"), own_name=own("127.0.1.1")),
        saying=["will not serve the store", "--rdzv-conf is_host=1 --local-addr 10.0.0.5"],
    ),
    speaks(
        "warning",  # an address of a second card: the own name knows the first one only
        a_machine(c10d("10.0.0.5:29400"), own_name=own("192.168.0.9")),
        saying=["node-a: 192.168.0.9"],
    ),
    speaks("warning", a_machine(c10d("")), saying=["no endpoint", "every node uses localhost"]),
    speaks(
        "note",
        a_machine(c10d("node-a")),
        saying=["then uses 29400", "--rdzv-endpoint node-a:29400"],
    ),
    silent(a_machine(c10d("10.0.0.5:29400"))),
    silent(a_machine(c10d("node-a:29400"), own_name=own("127.0.1.1"))),
    silent(a_machine(c10d("node-a.cluster.example:29400"), own_name=own("127.0.1.1"))),
    # another machine hosts
    silent(a_machine(c10d("10.0.0.9:29400"), own_name=own("127.0.1.1"))),
    silent(
        a_machine(
            c10d("10.0.0.5:29400", environment={"PET_RDZV_CONF": "timeout=60,is_host=1"}),
            own_name=own("127.0.1.1"),
        )
    ),
    silent(a_machine(c10d("", min_nodes=1, max_nodes=1))),
    silent(a_machine(c10d("localhost:0", min_nodes=1, max_nodes=1))),
    skips(
        a_machine(c10d("10.0.0.5:29400"), own_name=Unread(why="no answer")), saying=["no answer"]
    ),
    skips(a_machine(c10d("node-b:29400")), saying=["node-b was not resolved"]),
    not_applicable(a_machine(), saying=["one node"]),
    not_applicable(a_machine(a_plan(min_nodes=2, max_nodes=2)), saying=["a fixed number"]),
    not_applicable(
        a_machine(a_plan(min_nodes=1, max_nodes=4, rdzv_backend="etcd-v2")), saying=["etcd-v2"]
    ),
)

HOSTS = """\
127.0.0.1 localhost
127.0.1.1 node-a.example node-a
10.0.0.5 fabric.example
127.0.1.1 alias.example
"""
QUESTIONS = (
    "localhost",
    "127.0.0.1",
    "127.0.1.1",
    "node-a",
    "node-a.example",
    "alias.example",
    "fabric.example",
    "10.0.0.5",
    "0.0.0.0",
)
ASK_TORCH = """
import importlib.util, json, socket, subprocess, sys
source, hosts, names = sys.argv[1], sys.argv[2], sys.argv[3:]
socket.sethostname("node-a")
subprocess.run(["mount", "--bind", hosts, "/etc/hosts"], check=True)
spec = importlib.util.spec_from_file_location("torch_rule", source)
rule = importlib.util.module_from_spec(spec)
spec.loader.exec_module(rule)
def resolve(name):
    return [found[4][0] for found in socket.getaddrinfo(name, None, proto=socket.IPPROTO_TCP)]
print(json.dumps({
    "fqdn": socket.getfqdn(),
    "own": resolve("node-a"),
    "names": {name: [rule._matches_machine_hostname(name), resolve(name)] for name in names},
}))
"""


def ask_torch(hosts: Path) -> Any:
    """torch's own rule, on a machine whose name is node-a and whose hosts file is ours."""
    spec = importlib.util.find_spec("torch")
    if os.geteuid() != 0 or not shutil.which("unshare"):
        pytest.skip("needs root")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("needs torch")
    source = Path(spec.submodule_search_locations[0], "distributed/elastic/rendezvous/utils.py")
    command = ["unshare", "--uts", "--mount", sys.executable, "-c", ASK_TORCH]
    answer = subprocess.run(
        [*command, str(source), str(hosts), *QUESTIONS],
        check=True,
        capture_output=True,
        timeout=60,
    )
    return json.loads(answer.stdout)


@pytest.mark.lab
def test_our_rule_of_who_hosts_is_torchs_own(tmp_path: Path) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text(HOSTS)
    torch_says = ask_torch(hosts)
    machine = a_machine(own_name=own(*torch_says["own"]), own_fqdn=torch_says["fqdn"])
    verdicts = {name: answer for name, (answer, _) in torch_says["names"].items()}
    ours = {
        name: _will_host_store(_calling(machine, name, found), name)
        for name, (_, found) in torch_says["names"].items()
    }
    assert ours == verdicts
    assert set(verdicts.values()) == {True, False}


def _calling(machine: MachineFacts, name: str, found: list[str]) -> MachineFacts:
    resolution = Resolution(name=name, addresses=tuple(found), error="", seconds=0.001)
    plan = c10d(f"{name}:29400", master_addr=name)
    return msgspec.structs.replace(machine, plan=plan, master_name=resolution)


# --- explain --------------------------------------------------------------------------

LOST = (
    "torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection to the "
    "C10d store has failed. See inner exception for details."
)
NO_ANSWER = "The client socket has timed out after 60s while trying to connect to (node-a, 29400)."

test_explain = explain_table(
    "rendezvous-config",
    recognises(
        wreckage("etcd.EtcdConnectionFailed: No more machines in the cluster"),
        sure=0.7,
        what="etcd endpoint",
        saying=["no etcd server answered", "--enable-v2"],
    ),
    passes_over(wreckage("etcd.EtcdKeyNotFound: Key not found : /torch/elastic/store")),
    recognises(
        wreckage(
            "ValueError: The hostname of the rendezvous endpoint 'node a:29400' must be a "
            "dot-separated list of labels, an IPv4 address, or an IPv6 address."
        ),
        sure=0.93,
        what="The hostname of the rendezvous endpoint",
        saying=["rejected the rendezvous settings"],
    ),
    recognises(
        wreckage(
            "ValueError: Port is absent in endpoint: node-a. Try launching with --master_port"
        ),
        sure=0.93,
        what="Port is absent in endpoint: node-a",
        saying=["Port is absent"],
    ),
    recognises(
        wreckage(
            "ValueError: The rendezvous backend 'c10' is not registered. Did you forget to call "
            "`register`?"
        ),
        sure=0.93,
        what="'c10'",
        saying=["c10"],
    ),
    recognises(
        wreckage(NO_ANSWER, LOST),
        sure=0.5,
        what="node-a port 29400",
        saying=["no node served it", "no log says that it hosts", "is_host=1"],
    ),
    recognises(
        wreckage(
            "Process 4711 hosts the TCP store for the C10d rendezvous backend.", NO_ANSWER, LOST
        ),
        sure=0.25,
        what="node-a",
        saying=["no node served it"],
        not_saying=["no log says"],
    ),
    passes_over(wreckage(NO_ANSWER)),
    passes_over(wreckage(LOST)),
    passes_over(
        wreckage(
            "The client socket has failed to connect to [node-a]:29400 (errno: 113 - No route to "
            "host).",
            LOST,
        )
    ),
)

test_lint = lint_table("rendezvous-config", *CASES)


# --- between nodes -------------------------------------------------------------------------------

C10D = some_nodes(3, rdzv_backend="c10d", rdzv_endpoint="10.0.0.1:29400")


def believing(*hosts: str, facts: NodesFacts = C10D) -> NodesFacts:
    for node in facts.nodes:
        why = "its name is 127.0.1.1" if node.name not in hosts else "its name is 10.0.0.1"
        store = StoreBelief(endpoint="10.0.0.1:29400", hosts_it=node.name in hosts, why=why)
        facts = on_node(facts, node.name, store=store)
    return facts


test_check_nodes = between.table(
    "rendezvous-config",
    between.speaks(
        "error",
        believing(),
        saying=[
            "no node believes that it serves the store of 10.0.0.1:29400",
            "node-a: its name is 127.0.1.1",
            "on node-a: `torchrun --rdzv-conf is_host=1 --local-addr 10.0.0.1",
            "is_host=0",
        ],
    ),
    between.speaks(
        "error",
        believing("node-a", "node-c"),
        saying=["node-a and node-c each believe", "falls apart", "on node-a: `torchrun"],
    ),
    between.speaks(  # two are too many, whatever a third one says
        "error",
        on_node(believing("node-a", "node-c"), "node-b", store=Unread(why="late")),
        saying=["node-a and node-c each believe"],
    ),
    between.silent(believing("node-a")),
    between.skips(
        on_node(believing("node-a"), "node-b", store=Unread(why="late")), saying=["late"]
    ),
    between.skips(on_node(believing(), "node-b", store=Unread(why="late")), saying=["late"]),
    between.not_applicable(some_nodes(3), saying=["no rendezvous endpoint"]),
)
