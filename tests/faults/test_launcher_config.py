import pytest

from holdfast.catalogue import by_slug
from holdfast.faults.launcher_config import COMPLAINTS, Complaint
from tests.faults.table import passes_over, recognise_table, recognises
from tests.remains.made import wreckage

ALONE = "Initializing distributed: GLOBAL_RANK: 0, MEMBER: 1/1"
GPUS = "LOCAL_RANK: 0 - CUDA_VISIBLE_DEVICES: [0,1,2]"
SRUN = "The `srun` command is available on your system but is not used. HINT: If your intention"

test_recognise = recognise_table(
    "launcher-config",
    recognises(
        wreckage("There are not enough slots available in the system to satisfy the 8 slots"),
        sure=0.93,
        what="slots",
        saying=["more processes (8)"],
    ),
    recognises(  # wrapped before the number
        wreckage("There are not enough slots available in the system"),
        sure=0.93,
        what="slots",
        saying=["more processes than it has slots"],
    ),
    recognises(
        wreckage("train.py: error: unrecognized arguments: --lr 3 --local-rank=0"),
        sure=0.93,
        what="--local-rank",
        saying=["LOCAL_RANK", "torchrun"],
    ),
    recognises(
        wreckage("ValueError: No slot '4' specified on host 'worker-0'"),
        sure=0.93,
        what="No slot '4'",
        saying=["worker-0", "slots=N"],
    ),
    recognises(
        wreckage(
            "ValueError: You set `devices=4` in Lightning, but the number of tasks per node "
            "configured in SLURM `--ntasks-per-node=1` does not match. HINT: Set `devices=1`."
        ),
        sure=0.93,
        what="--ntasks-per-node=1",
        saying=["devices=4", "srun"],
    ),
    recognises(
        wreckage("RuntimeError: world_size (6) is not divisible by 4"),
        sure=0.93,
        what="world size 6",
        saying=["6 ranks, 4 asked for"],
    ),
    recognises(
        wreckage(
            "AssertionError: Check batch related parameters. train_batch_size is not equal to "
            "micro_batch_per_gpu * gradient_acc_step * world_size 256 != 4 * 8 * 1"
        ),
        sure=0.75,
        what="train_batch_size",
        saying=["256 is not 4 x 8 x 1"],
    ),
    recognises(wreckage(ALONE, GPUS), sure=0.65, what="tasks", saying=["3 GPUs"]),
    recognises(
        wreckage(SRUN, ALONE, GPUS), sure=0.75, what="tasks", saying=["--ntasks-per-node=3"]
    ),
    passes_over(wreckage("world_size=1", GPUS)),  # one process may use several GPUs by itself
    passes_over(wreckage(ALONE, "LOCAL_RANK: 0 - CUDA_VISIBLE_DEVICES: [0]")),
    passes_over(wreckage(SRUN)),  # a hint alone
    passes_over(wreckage("train.py: error: unrecognized arguments: --lerning-rate 3")),
    passes_over(wreckage("batch size (6) is not divisible by 4")),
)


@pytest.mark.parametrize("complaint", COMPLAINTS, ids=lambda one: one.wording.name)
def test_every_complaint_makes_a_whole_sentence(complaint: Complaint) -> None:
    faces = by_slug("launcher-config").recognitions
    found = [d for face in faces if (d := face(wreckage(complaint.wording.example)))]
    assert len(found) == 1
    assert found[0].confidence == complaint.sure
    assert not set("{}") & set(found[0].reason), "every gap is filled"
    assert found[0].culprit is not None
    assert found[0].culprit.what
