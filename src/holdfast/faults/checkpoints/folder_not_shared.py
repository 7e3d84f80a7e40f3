"""Each machine of the job has a checkpoint folder of its own.

What you see   With holdfast: `rank 1 on node1 does not see what rank 0 on node0 wrote into DIR:
               each machine has a folder of its own there`, before training, or in its first steps
               where the script does not call `resume()`. Without it training runs for hours, and
               after the first failure a rank finds no file: rank 0 resumes at step 1200, the others
               begin at step 0 or raise FileNotFoundError; or nothing can be resumed at all, because
               the parts of a sharded checkpoint lie on disks that other machines cannot read.
Why            The path is the same on all machines, the disk behind it is not: a local disk, the
               root of a container, /tmp, or a network share that is not mounted on one of them.
How to be sure On every machine: `findmnt -T DIR` names the file system; write a file there on one
               machine and look for it on another.
Fix            Put the folder on a file system that all machines share (NFS, Lustre, CephFS), and
               mount it on all of them. Where there is none: `Checkpoint(…, upload_to="s3://…")`
               keeps a copy elsewhere, but a job on several machines still needs one folder.
Known limits   Copies of one checkpoint on local disks, put there by hand, count as separate
               folders: the next save would belong to none of them. To read one without saving, use
               `holdfast.load`.
Sources        https://docs.pytorch.org/docs/stable/distributed.checkpoint.html (all ranks write
               into one folder)
               https://docs.pytorch.org/tutorials/intermediate/ddp_tutorial.html
"""

from __future__ import annotations

from holdfast import shell_words
from holdfast.analysis.job import resume_refused
from holdfast.analysis.logs.wreckage import Wreckage
from holdfast.analysis.scene.scene import Scene
from holdfast.fault import Fault, RunTraits
from holdfast.findings import Culprit, Diagnosis, Verdict

FAULT = Fault(
    code="HOLD812",
    slug="folder-not-shared",
    traits=RunTraits(priority=247),
    related=("folder-unwritable", "restart-from-zero", "checkpoint-incomplete"),
)


@FAULT.run
def rank_does_not_see_the_folder(scene: Scene) -> Verdict | None:
    return resume_refused.verdict(FAULT.verdict, scene, FAULT.slug)


# --- in what is left of a job -------------------------------------------------------------------

OWN_WORDS = FAULT.log_pattern(
    "holdfast",
    r"(?P<blind>rank \d{1,7}(?: on \S{1,80})?) does not see what (?P<writer>rank 0(?: on "
    r"\S{1,80})?) wrote into (?P<folder>.{1,300}?): each machine has a folder of its own there",
    anchors="each machine has a folder of its own there",
    example="holdfast.errors.FolderNotShared: rank 1 on node1 does not see what rank 0 on node0 "
    "wrote into /data/ckpts: each machine has a folder of its own there [folder-not-shared]",
)


@FAULT.explain
def rank_did_not_see_the_folder(wreckage: Wreckage) -> Diagnosis | None:
    seen = wreckage.seen(OWN_WORDS)
    if not seen:
        return None
    fields = seen[0].fields
    return FAULT.diagnosis(
        f"{fields['blind']} did not see what {fields['writer']} had written into "
        f"{fields['folder']}: the machines do not share that folder",
        confidence=0.97,
        seen=seen,
        culprit=Culprit(what=fields["folder"]),
        fix=f"put it on a file system that all machines of the job share, and mount it on all of "
        f"them; `findmnt -T {shell_words.word(fields['folder'], 'FOLDER')}` on each shows what is "
        "there now",
    )
