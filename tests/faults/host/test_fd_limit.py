from __future__ import annotations

from holdfast.analysis.machine import Limit, Limits, Unread
from tests.analysis.logs.patterns.made import wreckage
from tests.analysis.source.made_sources import dockerfile, shell
from tests.faults.machines import a_machine, a_plan, limits
from tests.faults.table import (
    check_table,
    explain_table,
    flags,
    leaves,
    lint_table,
    notices,
    overlooks,
    passes_over,
    recognises,
    run_table,
    silent,
    skips,
    speaks,
)
from tests.run.scenes import a_rank, a_scene, ended, lost_its_peer, words


def files(soft: int | None, hard: int | None, pid: int = 100) -> Limits:
    return limits(nofile=Limit(soft=soft, hard=hard), pid=pid)


EIGHT_NODES = a_plan(nproc=8, min_nodes=8, max_nodes=8)

test_check = check_table(
    "fd-limit",
    speaks(
        "error",
        a_machine(limits=files(64, 1048576)),
        saying=[
            "this shell may open only 64 files",
            "estimate: 256 for a rank with its loaders plus 16 for each of 4 ranks, 320 in total",
            "soft 64, hard 1048576",
            "`ulimit -n 65536` in the shell that starts the ranks",
        ],
        not_saying=["administrator", "ENOMEM"],
    ),
    speaks(
        "error",
        a_machine(limits=files(64, 128)),
        saying=["`ulimit -n 128`", "the hard limit allows no more", "nofile 131072"],
    ),
    speaks(
        "error",
        a_machine(limits=files(64, 64)),
        saying=["the hard limit is no higher", "a new shell", "administrator"],
        not_saying=["`ulimit -n"],
    ),
    speaks(
        "warning",
        a_machine(limits=files(256, 4096)),
        saying=["EMFILE", "`ulimit -n 4096`"],
    ),
    speaks(
        "warning",  # the usual 1024 is enough for one machine, not for 64 ranks
        a_machine(EIGHT_NODES, limits=files(1024, 524288)),
        saying=["each of 64 ranks, 1280 in total"],
    ),
    speaks(
        "warning",
        a_machine(a_plan(nproc=8, max_nodes=1000), limits=files(65536, None)),
        saying=["`ulimit -n 128256`"],
    ),
    speaks(
        "error",
        a_machine(launcher_limits=files(64, 4096, pid=77)),
        saying=["the launcher (pid 77) may open only 64", "`prlimit --pid 77 --nofile=4096:`"],
    ),
    silent(a_machine()),
    silent(a_machine(limits=files(None, None))),
    silent(a_machine(a_plan(nproc=8), limits=files(1024, 524288))),
    silent(a_machine(limits=files(320, 320))),
    silent(a_machine(launcher_limits=files(1024, 4096, pid=77))),
    skips(a_machine(limits=Unread(why="no /proc")), saying=["no /proc"]),
    skips(a_machine(launcher_limits=Unread(why="pid 77 is gone")), saying=["pid 77 is gone"]),
)

test_explain = explain_table(
    "fd-limit",
    recognises(
        wreckage(
            "[rank1]: RuntimeError: unable to open shared memory object </torch_4711_12> in "
            "read-write mode"
        ),
        sure=0.6,
        rank=1,
        what="ulimit -n",
        saying=["usually the limit on open files", "file_system"],
    ),
    passes_over(
        wreckage(
            "RuntimeError: unable to open shared memory object </torch_1> in read-write mode: No "
            "such file or directory (2)"
        )
    ),
    recognises(
        wreckage("[rank2]: OSError: [Errno 24] Too many open files: '/data/x.npy'"),
        sure=0.95,
        rank=2,
        what="ulimit -n",
        saying=["ulimit -n 65536", "ulimit -Sn"],
    ),
    recognises(
        wreckage("[rank0]: RuntimeError: received 0 items of ancdata"),
        sure=0.9,
        rank=0,
        saying=["a tensor from a loader worker", "set_sharing_strategy"],
    ),
    recognises(
        wreckage(
            "NCCL WARN Call to socket failed: Too many open files", versions={"nccl": "2.21.5"}
        ),
        sure=0.95,
        saying=["NCCL before 2.24.3 also leaked"],
    ),
    recognises(
        wreckage("OSError: [Errno 23] Too many open files in system"),
        sure=0.95,
        saying=["fs.file-max"],
    ),
    passes_over(wreckage("OSError: [Errno 24] inotify instance limit reached")),
    passes_over(wreckage("OSError: [Errno 28] No space left on device")),
)

test_lint = lint_table(
    "fd-limit",
    flags(
        "note",
        shell("ulimit -n 2000000\ntorchrun x.py\n"),
        lines=[1],
        saying=["fs.nr_open, by default 1048576", 'ulimit -n "$(ulimit -Hn)"'],
    ),
    flags("note", shell("ulimit -Sn unlimited\n"), lines=[1], saying=["fs.nr_open"]),
    flags("warning", shell("ulimit -n 128\n"), lines=[1], saying=["too low for a rank"]),
    flags(
        "error",
        shell("sudo ulimit -n 65536\n"),
        lines=[1],
        saying=["`sudo ulimit` has no effect", "a shell builtin"],
    ),
    flags(
        "warning",
        dockerfile("FROM x\nRUN ulimit -n 65536\nRUN pip install y\n"),
        lines=[2],
        saying=["that build step only", "--ulimit nofile=131072"],
    ),
    flags(
        "error",
        shell("docker run --ulimit nofile=131072:65536 img torchrun x.py\n"),
        lines=[1],
        saying=["soft limit 131072 is above the hard limit 65536", "`--ulimit nofile=131072`"],
    ),
    leaves(shell("ulimit -n 1048576\n")),  # may be granted; where it is not, the old one stays
    leaves(shell("ulimit -n 65536\nulimit -n\nulimit -Hn; ulimit -c 0\n")),
    leaves(shell('ulimit -n "$(ulimit -Hn)"\nulimit -n $LIMIT\n')),
    leaves(shell("docker run --ulimit nofile=65536:131072 img torchrun x.py\n")),
    leaves(dockerfile("FROM x\nRUN ulimit -n 4096 && make -j\nCMD ulimit -n 65536 && serve\n")),
)

EMFILE = words("OSError", "[Errno 24] Too many open files: '/data/000017.npy'")
ANCDATA = words("RuntimeError", "received 0 items of ancdata")

test_run = run_table(
    "fd-limit",
    notices(
        a_scene([ended(0, 1, said=EMFILE), lost_its_peer(1)]),
        ranks=[0],
        victims=[1],
        certain=True,
        saying=["rank 0 (pid 4000) reached the limit on open files", "000017.npy", "ulimit -n"],
    ),
    notices(
        a_scene([ended(1, 1, said=ANCDATA), a_rank(0)]), ranks=[1], certain=True, saying=["ancdata"]
    ),
    overlooks(a_scene()),
    overlooks(
        a_scene(
            [
                ended(0, 1, said=words("OSError", "[Errno 24] inotify instance limit reached")),
                a_rank(1),
            ]
        )
    ),
    overlooks(a_scene([ended(0, 1, said=words("OSError", "[Errno 13] Permission denied"))])),
)
