from __future__ import annotations

from tests.analysis.logs.patterns.made import wreckage
from tests.faults.checkpoints.test_world_size_mismatch import REFUSED
from tests.faults.table import explain_table, notices, overlooks, passes_over, recognises, run_table
from tests.run.scenes import a_scene, ended, lost_its_peer, words

SENTENCE = (
    "rank 1 on node1 does not see what rank 0 on node0 wrote into /data/ckpts: each machine has a "
    "folder of its own there"
)
APART = words(
    "FolderNotShared",
    SENTENCE,
    hint="put the folder on a file system that all machines of the job share",
    slugs=("folder-not-shared",),
)

test_run = run_table(
    "folder-not-shared",
    notices(
        a_scene([ended(0, 1, said=APART), ended(1, 1, said=APART)]),
        ranks=[0, 1],
        certain=True,
        fatal=True,
        saying=[SENTENCE, "file system that all machines of the job share"],
    ),
    # without resume() only the rank that does not see it says so
    notices(
        a_scene([lost_its_peer(0), ended(1, 1, said=APART)]),
        ranks=[1],
        victims=[0],
        certain=True,
        fatal=True,
        saying=[SENTENCE],
    ),
    overlooks(a_scene()),
    overlooks(a_scene([ended(0, 1, said=REFUSED)])),
)

test_explain = explain_table(
    "folder-not-shared",
    recognises(
        wreckage(f"holdfast.errors.FolderNotShared: {SENTENCE} [folder-not-shared]"),
        sure=0.97,
        what="/data/ckpts",
        saying=["rank 1 on node1 did not see", "findmnt -T /data/ckpts"],
    ),
    passes_over(wreckage("rank 1 does not see its GPU")),
)
