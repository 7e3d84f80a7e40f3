from tests.analysis.source.made_sources import shell
from tests.faults.table import flags, leaves, lint_table

COOL = "--blacklist-cooldown-range 60 600"
FIND = "--host-discovery-script ./hosts.sh"

test_lint = lint_table(
    "horovod-discovery",
    flags(
        "error",
        shell("horovodrun -np 8 --min-np 4 --max-np 12 python train.py\n"),
        lines=[1],
        saying=["fewer than 2 hosts", "--host-discovery-script"],
    ),
    flags(
        "warning",
        shell("horovodrun -np 8 --min-np 4 python train.py\n", complete=False),
        lines=[1],
        saying=["no hosts are given"],
    ),
    flags(
        "error",
        shell(f"horovodrun -np 8 --min-num-proc 4 {COOL} -H gpu1:8 python train.py\n"),
        lines=[1],
        saying=["one host, gpu1:8"],
    ),
    flags(
        "warning",
        shell(f"horovodrun -np 8 --min-np 4 {COOL} -H gpu1:4,gpu2:4 python train.py\n"),
        lines=[1],
        saying=["list of hosts is fixed"],
    ),
    flags(
        "note",
        shell(f"horovodrun -np 8 --min-np 4 {FIND} python train.py\n"),
        lines=[1],
        saying=["never used again", "--blacklist-cooldown-range 60 600"],
    ),
    flags(
        "note",
        shell(f"horovodrun -np 8 --min-np 8 {FIND} {COOL} python train.py\n"),
        lines=[1],
        saying=["one lost worker pauses the job"],
    ),
    flags(
        "note",
        shell(f"horovodrun --num-proc 8 {FIND} {COOL} python train.py\n"),
        lines=[1],
        saying=["--min-np is -np (8) here"],
    ),
    flags(
        "error",
        shell(f"horovodrun -np 8 --min-np 12 --max-np 10 {FIND} {COOL} python train.py\n"),
        lines=[1],
        saying=["--min-np 12 is more than --max-np 10"],
    ),
    leaves(shell("horovodrun -np 8 -H a:4,b:4 python train.py\n")),
    leaves(shell(f"horovodrun -np 8 --min-np 4 --max-np 12 {FIND} {COOL} python train.py\n")),
    leaves(shell("horovodrun -np 8 $ELASTIC --min-np 4 python train.py\n")),
    leaves(shell("horovodrun --config-file e.yaml --min-np 4 python train.py\n")),
)
