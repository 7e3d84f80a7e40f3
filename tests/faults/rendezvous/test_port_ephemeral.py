from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.analysis.machine import Bind, Connection, PortRanges, Unread
from holdfast.analysis.source.launch import random_ports
from holdfast.analysis.source.source import LintingMachine
from tests.analysis.logs.patterns.made import wreckage
from tests.analysis.source.made_sources import python, shell
from tests.faults.machines import a_connection, a_machine, a_plan, a_port, a_process
from tests.faults.table import (
    check_table,
    explain_table,
    flags,
    leaves,
    lint_table,
    not_applicable,
    passes_over,
    recognises,
    silent,
    skips,
    speaks,
)

TAKEN = (Bind(family="IPv6", error="EADDRINUSE"), Bind(family="IPv4", error="EADDRINUSE"))
HIGH = a_plan(port=40123, port_origin="MASTER_PORT")
NAMED = a_plan(port_origin="--port")


def ranges(**changes: Any) -> PortRanges:
    values: dict[str, Any] = {
        "ephemeral_low": 32768,
        "ephemeral_high": 60999,
        "reserved": (),
        "first_unprivileged": 1024,
    }
    return PortRanges(**(values | changes))


def time_wait(seconds: float) -> Connection:
    return a_connection(
        local="127.0.0.1:29500",
        peer="127.0.0.1:443",
        state="TIME_WAIT",
        seconds_left=seconds,
        user="",
        owner=None,
    )


OUTGOING = a_connection(
    local="10.0.0.5:29500",
    peer="10.0.0.9:443",
    state="ESTABLISHED",
    owner=a_process(pid=812, command="curl example.org"),
)

test_check = check_table(
    "port-ephemeral",
    speaks(
        "warning",
        a_machine(HIGH, port=a_port(port=40123)),
        saying=["40123", "32768-60999", "`export MASTER_PORT=29600`", "ip_local_reserved_ports"],
    ),
    speaks(
        "warning",  # a range that leaves no room: the only advice is to reserve the port
        a_machine(
            NAMED,
            port_ranges=ranges(ephemeral_low=1024, ephemeral_high=65535, reserved=((8080, 8081),)),
        ),
        saying=["ip_local_reserved_ports=8080-8081,29500"],
        not_saying=["--master-port"],
    ),
    speaks(
        "error",
        a_machine(NAMED, port=a_port(binds=TAKEN, others=(OUTGOING,))),
        saying=["held by an outgoing connection", "pid 812 `curl example.org`", "10.0.0.9:443"],
        not_saying=["wait"],
    ),
    speaks(
        "error",
        a_machine(NAMED, port=a_port(binds=TAKEN, others=(time_wait(12.1), time_wait(40.2)))),
        saying=["TIME_WAIT for another 41 s", "wait 41 s, or choose another port", "--master-port"],
    ),
    speaks(
        "error",
        a_machine(
            NAMED,
            port=a_port(
                binds=TAKEN,
                others=(a_connection(state="FIN_WAIT2", owner=Unread(why="not permitted")),),
            ),
        ),
        saying=["pid not visible (not permitted)"],
    ),
    speaks(
        "warning",  # no setting names this port
        a_machine(port=a_port(binds=TAKEN, others=(time_wait(5.0),))),
        saying=["another 5 s"],
    ),
    speaks(
        "error",
        a_machine(NAMED, port=a_port(binds=TAKEN)),
        saying=["no socket is listed on it", "without listening", "IPv6: EADDRINUSE"],
    ),
    speaks(
        "note",
        a_machine(
            NAMED,
            port=a_port(binds=(TAKEN[0], Bind(family="IPv4", error="")), others=(time_wait(9.0),)),
        ),
        saying=["one address family only"],
    ),
    silent(a_machine()),
    # TIME_WAIT of the server's side: the bind works
    silent(a_machine(NAMED, port=a_port(others=(time_wait(50.0),)))),
    # a listener is port-in-use's business
    silent(a_machine(NAMED, port=a_port(binds=TAKEN, listeners=(a_connection(),)))),
    # in the range, but reserved; just below the range; just above it
    silent(a_machine(HIGH, port_ranges=ranges(reserved=((40000, 40200),)))),
    silent(a_machine(a_plan(port=32767))),
    silent(a_machine(a_plan(port=61000))),
    skips(a_machine(port_ranges=Unread(why="no /proc")), saying=["no /proc"]),
    skips(a_machine(port=Unread(why="no answer")), saying=["no answer"]),
    not_applicable(a_machine(a_plan(port=0)), saying=["picks the port itself"]),
)


# --- explain --------------------------------------------------------------------------

test_explain = explain_table(
    "port-ephemeral",
    recognises(
        wreckage(
            "RuntimeError: The server socket has failed to listen on any local network address. "
            "The server socket has failed to bind to [::]:45123 (errno: 98 - Address already in "
            "use)."
        ),
        sure=0.4,
        what="port 45123",
        saying=["outgoing connections", "ss -tano 'sport = :45123'"],
    ),
    passes_over(
        wreckage(
            "[W socket.cpp:426] [c10d] The server socket has failed to bind to [::]:29500 (errno: "
            "98 - Address already in use)."
        )
    ),
    passes_over(wreckage("RuntimeError: Address already in use")),
)

test_lint = lint_table(
    "port-ephemeral",
    flags(
        "warning",
        shell("export MASTER_PORT=45123\nsrun python x.py\n"),
        lines=[1],
        saying=["port 45123", "32768-60999", "29600"],
    ),
    flags(
        "warning",
        shell("torchrun --nnodes 2 \\\n  --master_port=50000 x.py\n"),
        lines=[2],
        saying=["50000"],
    ),
    flags(
        "warning",
        shell('torchrun --rdzv-backend c10d --rdzv-endpoint "$HOST:49152" x.py\n'),
        lines=[1],
        saying=["49152"],
    ),
    flags(
        "warning",
        shell("P_PORT=$((30000 + RANDOM % 10000))\ndeepspeed --master_port $P_PORT x.py\n"),
        lines=[1],
        saying=["from 30000 to 39999", "72%"],
    ),
    flags(
        "warning",
        shell("torchrun --master_port=$(( 41000 + RANDOM % 500 )) x.py\n"),
        lines=[1],
        saying=["from 41000 to 41499"],
    ),
    flags(
        "warning",
        shell("at=$((41000 + $$ % 500))\ntorchrun --rdzv-endpoint $(hostname):$at x.py\n"),
        lines=[2],
        saying=["from 41000 to 41499"],
    ),
    flags(  # once, where it is drawn
        "warning",
        shell("MASTER_PORT=$((41000 + $$ % 500))\ntorchrun --master-port=$MASTER_PORT x.py\n"),
        lines=[1],
        saying=["from 41000 to 41499"],
    ),
    leaves(shell("torchrun --master_port=$(( 21000 + RANDOM % 500 )) x.py\n")),
    leaves(shell("torchrun --master_port=$(( BASE + RANDOM % 500 )) x.py\n")),
    flags(
        "warning",
        shell("export MASTER_PORT=$(shuf -i 10000-65000 -n 1)\n"),
        lines=[1],
        saying=["10000 to 65000"],
    ),
    flags(
        "warning",
        shell("MASTER_PORT=$(python -c 'from random import *; print(randint(20000, 60000))')\n"),
        lines=[1],
        saying=["20000 to 60000"],
    ),
    flags(
        "warning",
        python(
            """
            import os, random
            os.environ["MASTER_PORT"] = str(random.randint(40000, 50000))
            """
        ),
        lines=[2],
        saying=["40000 to 50000"],
    ),
    flags(
        "warning",
        python(
            """
            import torch.distributed as dist
            dist.init_process_group(
                "gloo",
                init_method="tcp://10.0.0.1:47000",
            )
            """
        ),
        lines=[4],
        saying=["port 47000"],
    ),
    flags(
        "warning",
        python(
            """
            from torch.distributed import TCPStore
            store = TCPStore("localhost", 33000, 2, True)
            """
        ),
        lines=[2],
        saying=["port 33000"],
    ),
    flags(
        "note",
        shell("export MASTER_PORT=$((1024 + RANDOM))\n"),
        lines=[1],
        saying=["3% of them"],
    ),
    leaves(
        python(
            """
            import torch.distributed as dist
            dist.init_process_group("gloo", init_method="tcp://10.0.0.1:29500")
            dist.init_process_group("gloo", init_method=f"tcp://{host}:{port}")
            """
        )
    ),
    flags(
        "error",
        shell("export MASTER_PORT=$((RANDOM + 40000))\n"),
        lines=[1],
        saying=["up to 72767"],
    ),
    flags(
        "error",
        shell("export MASTER_PORT=70000\n"),
        lines=[1],
        saying=["port 70000 does not exist"],
    ),
    flags("warning", shell("export MASTER_PORT=443\n"), lines=[1], saying=["only root may bind"]),
    leaves(shell("export MASTER_PORT=29500\ntorchrun --master-port 29600 x.py\n")),
    leaves(shell("export MASTER_PORT=$((10000 + SLURM_JOB_ID % 20000))\n")),
    leaves(shell("torchrun --rdzv-endpoint=localhost:0 x.py\n")),
    leaves(shell("export MASTER_PORT=$PORT MASTER_PORT=$(free_port) MASTER_PORT=<port>\n")),
    leaves(shell("REDIS_PORT=$((40000 + RANDOM % 9))\nredis-server --port $REDIS_PORT\n")),
    leaves(
        shell(
            "export MASTER_PORT=45123\n",
            here=LintingMachine(torch="2.13.0", ephemeral=(50000, 60999)),
        )
    ),
)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("$(( RANDOM % 20000 + 40000 ))", (40000, 59999)),
        ("$((RANDOM%100*10+20000))", (20000, 20990)),
        ("$[ 10000 + $RANDOM / 2 ]", (10000, 26383)),
        ("$(( ( ${RANDOM} % 10 ) * ( 2 + 3 ) ))", (0, 45)),
        ("$((12000 + $$ % 1000))", (12000, 12999)),
        ("$(expr 15000 + $RANDOM % 10)", (15000, 15009)),
        ("$(seq 49152 65535 | shuf | head -n 1)", (49152, 65535)),
        ("$(jot -r 1 30000 40000)", (30000, 40000)),
        ("random.randrange(100, 200)", (100, 199)),
        ("$((SLURM_JOB_ID))", None),
        ("$((RANDOM % N))", None),
        ("$(( ( RANDOM ))", None),
        ("$(free_port)", None),
        ("$((", None),
    ],
)
def test_the_span_of_a_draw(written: str, expected: tuple[int, int] | None) -> None:
    assert random_ports.span(written) == expected


@given(st.text("0123456789+-*/%() RANDOM$x", max_size=60))
def test_any_expression_has_a_span_or_none(text: str) -> None:
    span = random_ports.span(f"$(({text}))")
    assert span is None or 0 <= span[0] <= span[1]
