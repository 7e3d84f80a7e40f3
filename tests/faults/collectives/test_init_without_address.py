from holdfast.analysis.source.source import Launch, Source
from holdfast.findings import Place
from tests.analysis.logs.patterns.made import wreckage
from tests.analysis.source.made_sources import python
from tests.faults.table import explain_table, flags, leaves, lint_table, passes_over, recognises

NOT_SET = (
    "ValueError: Error initializing torch.distributed using env:// rendezvous: environment "
    "variable MASTER_ADDR expected, but not set"
)

test_explain = explain_table(
    "init-without-address",
    recognises(
        wreckage(NOT_SET), sure=0.95, what="MASTER_ADDR", saying=["MASTER_ADDR", "torchrun"]
    ),
    recognises(
        wreckage(
            "[rank1]: ValueError: Error initializing torch.distributed using tcp:// rendezvous: "
            "rank parameter missing"
        ),
        sure=0.95,
        rank=1,
        what="rank parameter",
        saying=["tcp://", "world_size="],
    ),
    recognises(
        wreckage("KeyError: 'LOCAL_RANK'"), sure=0.88, what="LOCAL_RANK", saying=["by a launcher"]
    ),
    recognises(
        wreckage("KeyError: 'SLURM_PROCID'"), sure=0.88, what="SLURM_PROCID", saying=["srun"]
    ),
    recognises(
        wreckage(
            "[rank2]: ValueError: Default process group has not been initialized, please make sure "
            "to call init_process_group."
        ),
        sure=0.7,
        rank=2,
        saying=["before init_process_group"],
    ),
    recognises(  # torch 1.x
        wreckage("AssertionError: Default process group is not initialized"),
        sure=0.7,
        saying=["init_process_group"],
    ),
    recognises(
        wreckage("ValueError: Horovod has not been initialized; use hvd.init()."),
        sure=0.7,
        saying=["hvd.init()"],
    ),
    recognises(  # one answer where both lines are there, the surer one
        wreckage(NOT_SET, "Default process group has not been initialized"),
        sure=0.95,
        what="MASTER_ADDR",
        saying=["MASTER_ADDR"],
    ),
    recognises(  # a traceback that was cut at its end
        wreckage('    raise _env_error("MASTER_ADDR")'),
        sure=0.95,
        what="MASTER_ADDR",
        saying=["MASTER_ADDR"],
    ),
    recognises(
        wreckage('    rank = int(_get_env_or_raise("RANK"))', NOT_SET),
        sure=0.95,
        what="MASTER_ADDR",
        saying=["MASTER_ADDR"],
    ),
    passes_over(wreckage("KeyError: 'rank'", "KeyError: 'RANKING'")),
    passes_over(wreckage("ValueError: trying to initialize the default process group twice!")),
)

SPAWNED = """
import os
import torch.distributed as dist
import torch.multiprocessing as mp
{before}

def run(rank, world_size):
    dist.init_process_group({given})

if __name__ == "__main__":
    mp.spawn(run, args=(2,), nprocs=2)
"""
ALL = "'gloo', rank=rank, world_size=world_size"
SET = "os.environ['MASTER_ADDR'] = 'localhost'"
PORT = "os.environ.setdefault('MASTER_PORT', '29500')"
PLAIN = "import torch.distributed as dist\ndist.init_process_group({})"
WHERE = Place(file="run.sh", line=3)


def spawned(given: str, before: str = "") -> Source:
    return python(SPAWNED.format(given=given, before=before))


def started(kind: str, *around: str) -> Source:
    launch = Launch(kind=kind, flags=(), place=WHERE, around=around)
    return python(PLAIN.format("'gloo'"), started_by=(launch,))


OWN = """
    import holdfast

    def main():
        ckpt = holdfast.Checkpoint("ckpts", state)
        holdfast.init()
        ckpt.resume()
"""

test_lint_of_our_own_library = lint_table(
    "init-without-address",
    flags("error", python(OWN), lines=[4], saying=["before the process group", "holdfast.init()"]),
    leaves(python(OWN.replace("holdfast.init()", "other()"))),
    leaves(python(OWN.replace("ckpt = ", "holdfast.init(); ckpt = "))),
)

test_lint = lint_table(
    "init-without-address",
    flags(
        "warning",
        python(PLAIN.format("'gloo', rank=0, world_size=1")),
        lines=[2],
        saying=["even with a literal rank=", "HashStore()"],
    ),
    leaves(python(PLAIN.format("'gloo', rank=0, world_size=1"), complete=False)),
    leaves(python(f"import os\n{SET}\n" + PLAIN.format("'gloo', rank=0, world_size=1"))),
    leaves(python(PLAIN.format("'gloo', rank=rank, world_size=2"))),
    flags(
        "error",
        spawned(ALL),
        lines=[7],
        saying=["MASTER_ADDR and MASTER_PORT", "mp.spawn (line 10)", "os.environ.setdefault"],
    ),
    flags("error", spawned(ALL, SET), lines=[7], saying=["reads MASTER_PORT from"]),
    flags(
        "error",
        spawned("'gloo'", f"{SET}; {PORT}"),
        lines=[7],
        saying=["RANK and WORLD_SIZE", "rank=rank, world_size=world_size"],
    ),
    flags(
        "error",
        python(
            "import torch.distributed as dist\nfrom multiprocessing import Process\n"
            "def join(r):\n    dist.init_process_group('gloo', rank=r, world_size=2)\n"
            "def work(r):\n    join(r)\n"
            "for r in range(2):\n    Process(target=work, args=(r,)).start()"
        ),
        lines=[4],
        saying=["Process (line 8)"],
    ),
    flags(
        "error",
        python(PLAIN.format("'gloo', init_method='tcp://10.0.0.1:23456'")),
        lines=[2],
        saying=["lacks rank and world_size"],
    ),
    flags(
        "error",
        python(PLAIN.format("'gloo', 'tcp://10.0.0.1', rank=0, world_size=2")),
        lines=[2],
        saying=["a port in the address"],
    ),
    flags("warning", started("python"), lines=[2], saying=["plain python (run.sh:3)", "torchrun"]),
    leaves(spawned(ALL, f"{SET}; {PORT}")),
    leaves(spawned(ALL, "os.environ.update(MASTER_ADDR='a', MASTER_PORT='1')")),
    leaves(spawned(ALL + ", init_method=url")),
    leaves(spawned(ALL + ", store=store")),
    leaves(spawned("'gloo', **options")),
    leaves(spawned("...")),
    leaves(spawned("'mpi'")),
    leaves(python(PLAIN.format("'nccl'"))),  # what starts it may set everything
    leaves(started("torchrun")),
    leaves(started("python", "srun")),
    leaves(python(PLAIN.format("init_method='tcp://10.0.0.1:2345?rank=0&world_size=2'"))),
)
