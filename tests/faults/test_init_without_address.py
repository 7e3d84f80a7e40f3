from tests.faults.table import passes_over, recognise_table, recognises
from tests.remains.made import wreckage

NOT_SET = (
    "ValueError: Error initializing torch.distributed using env:// rendezvous: environment "
    "variable MASTER_ADDR expected, but not set"
)

test_recognise = recognise_table(
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
