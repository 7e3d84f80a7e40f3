from __future__ import annotations

import signal

import pytest

from holdfast.analysis.logs import exception_advice
from holdfast.analysis.scene.scene import Death, RankView
from holdfast.faults.collectives.python_exception import FAULT
from holdfast.findings import Diagnosis, Verdict
from tests.analysis.logs.patterns.jobs import (
    HEALTHY,
    STUCK,
    a_job,
    a_raise,
    an_exit,
    lost,
    timed_out,
)
from tests.analysis.logs.patterns.made import traceback, wreckage
from tests.faults.table import (
    explain_table,
    notices,
    overlooks,
    passes_over,
    recognises,
    run_table,
)
from tests.run.scenes import NOW, TIMED_OUT, a_beat, a_rank, a_scene, ended, lost_its_peer, words

BAD = words("ValueError", "bad batch", at=NOW - 1.2, where="train.py:88 in forward")


def ended_early(rank: int, code: int, *, at: float = NOW - 1.0, log: str = "") -> RankView:
    beat = a_beat(steps=0, step_at=0.0, group_ready=False)
    return a_rank(rank, death=Death(code=code, at=at), activity=None, beat=beat, log=log)


test_run = run_table(
    "python-exception",
    notices(
        # it raised first, but its process ended last
        a_scene([lost_its_peer(0), lost_its_peer(1), ended(2, 1, at=NOW - 0.1, said=BAD)]),
        ranks=[2],
        victims=[0, 1],
        certain=True,
        saying=[
            "rank 2 (pid 4002) raised ValueError: bad batch at train.py:88 in forward",
            "after step 100",
            "ranks 0-1 exited as a result",
        ],
    ),
    notices(  # raised by holdfast's own library
        a_scene([ended(0, 1, said=words("ConfigError", "no group yet", hint="call init() first"))]),
        ranks=[0],
        certain=True,
        saying=["raised ConfigError: no group yet", "call init() first"],
    ),
    # still unwinding
    notices(
        a_scene([a_rank(0), a_rank(1, words=BAD)]), ranks=[1], certain=True, saying=["ValueError"]
    ),
    # the same line on all of them is one fault of all
    notices(
        a_scene([ended(r, 1, said=words("KeyError", "'x'", at=NOW - r)) for r in range(3)]),
        ranks=[0, 1, 2],
        victims=[],
        certain=True,
        saying=["ranks 0-2 raised KeyError: 'x'"],
        not_saying=["fell"],
    ),
    notices(
        a_scene([a_rank(0), ended(1, 3)]),
        ranks=[1],
        certain=True,
        saying=["exited with code 3 and recorded no exception"],
    ),
    # a mistyped flag: argparse has said so, and no rank differs from the others
    notices(
        a_scene([ended_early(r, 2, log=f"runs/r/rank-{r}.log") for r in range(2)]),
        ranks=[0, 1],
        victims=[],
        certain=True,
        saying=[
            "all 2 ranks exited with code 2 before the first step",
            "read the script's own message above, or in runs/r/rank-0.log",
        ],
    ),
    notices(
        a_scene([ended_early(0, 2), ended_early(1, 3, at=NOW - 0.5)]),
        ranks=[0],
        certain=True,
        saying=["exited with code 2 and recorded no exception", "rank 1 exited as a result"],
    ),
    # a user's own lost connection is a cause
    notices(
        a_scene([a_rank(0), a_rank(1, words=words("ConnectionResetError", "[Errno 104]"))]),
        ranks=[1],
        certain=True,
        saying=["ConnectionResetError"],
    ),
    # no rank is blamed when only echoes are left
    notices(
        a_scene([lost_its_peer(0), lost_its_peer(1), a_rank(2)]),
        ranks=[],
        victims=[0, 1, 2],
        certain=False,
        saying=["ranks 0-1 lost a peer", "no rank shows the cause"],
    ),
    overlooks(a_scene()),
    overlooks(  # the fault that it names says so
        a_scene([ended(0, 1, said=words("RanksDiffer", "ranks differ", slugs=("ranks-differ",)))])
    ),
    overlooks(a_scene([a_rank(0), ended(1, 0)])),
    overlooks(a_scene([ended(0, -signal.SIGKILL, at=NOW - 2), lost_its_peer(1)])),
    # another rank had left: what a wrapper makes of the lost connection is an echo too
    notices(
        a_scene(
            [
                ended(0, 0, at=NOW - 2),
                lost_its_peer(1, at=NOW - 1.9),
                ended(2, 1, said=words("MyError", "training failed", at=NOW - 1.8)),
            ]
        ),
        ranks=[],
        certain=False,
        saying=["no rank shows the cause"],
    ),
    # without last words, right after another one left, or after others had complained
    notices(
        a_scene([ended(0, 0, at=NOW - 2), ended(1, 1, at=NOW - 1.9)]),
        ranks=[],
        certain=False,
        saying=["no rank shows the cause"],
    ),
    notices(
        a_scene([lost_its_peer(0, at=NOW - 2), ended(1, 1, at=NOW - 1.5)]),
        ranks=[],
        certain=False,
        saying=["no rank shows the cause"],
    ),
    overlooks(
        a_scene(
            [
                ended(0, -signal.SIGSEGV, at=NOW - 2),
                ended(1, 1, said=words("RuntimeError", TIMED_OUT)),
            ]
        )
    ),
)


NO_MODULE = traceback(
    "ModuleNotFoundError: No module named 'torchvision'", "/home/me/train.py:3 <module>"
)

test_explain = explain_table(
    "python-exception",
    recognises(
        a_job(*map(lost, (0, 1, 3)), raised=[a_raise(2, "ValueError", "bad batch")]),
        sure=0.85,
        rank=2,
        victims=[0, 1, 3],
        saying=[
            "rank 2 raised ValueError: bad batch",
            "train.py:88",
            "ranks 0-1,3 failed as a result",
        ],
    ),
    recognises(
        a_job(raised=[a_raise(r, "KeyError", "'lr'", order=r + 1) for r in range(4)]),
        sure=0.7,
        rank=None,
        what="train.py:88",
        saying=["ranks 0-3 raised KeyError"],
    ),
    recognises(
        a_job(raised=[a_raise(None, "ValueError", "bad", frames=False)], world=None),
        sure=0.45,
        saying=["a rank raised ValueError: bad"],
    ),
    recognises(
        a_job(raised=[a_raise(1, "RuntimeError", "CUDA out of memory", root_slugs=("gpu-oom",))]),
        sure=0.35,
        rank=1,
        saying=["CUDA out of memory"],
    ),
    recognises(
        a_job(exits=[an_exit(0, 1), an_exit(2, 1, first=True)]),
        sure=0.4,
        rank=2,
        saying=["exited with code 1"],
    ),
    recognises(  # two tracebacks, and torchrun lists two ranks that failed
        wreckage(*2 * NO_MODULE, exits=(an_exit(0, 1, first=True), an_exit(1, 1))),
        sure=0.7,
        what="at train.py:3",
        saying=["ranks 0-1 raised ModuleNotFoundError", "install the package that has `torchvis"],
        not_saying=["fix that line"],
    ),
    recognises(  # the function that contains the line, not the one that it calls
        wreckage(
            *traceback(
                "AttributeError: module 'torch._C' has no attribute '_cuda_setDevice'",
                "/home/me/train.py:89 main",
                "/usr/lib/python3/dist-packages/torch/cuda/__init__.py:595 set_device",
            )
        ),
        sure=0.7,
        what="in main() at train.py:89",
        saying=["raised AttributeError", "in main() at train.py:89", "is a CPU build"],
    ),
    recognises(
        wreckage(
            *traceback(
                "OSError: We couldn't connect to 'https://huggingface.co' to load the files.",
                "/home/me/train.py:89 main",
                "/usr/lib/python3/dist-packages/transformers/utils/hub.py:470 cached_files",
            )
        ),
        sure=0.7,
        what="in main() at train.py:89",
        saying=["cannot reach what the script downloads", "HF_HUB_OFFLINE=1"],
    ),
    # After its own complaint of a lost peer, what a rank raises is fallout.
    passes_over(a_job(lost(1), raised=[a_raise(1, "ValueError", "cannot reduce", order=9)])),
    passes_over(a_job(raised=[a_raise(1, "RuntimeError", "closed", consequence="lost-peer")])),
    passes_over(a_job(raised=[a_raise(None, "ChildFailedError"), a_raise(0, "SystemExit")])),
    passes_over(a_job(timed_out(1), exits=[an_exit(0, -9)])),
    passes_over(HEALTHY),
    passes_over(STUCK),
)


def test_tracebacks_that_nobody_numbers_are_counted() -> None:
    (said,) = FAULT.ask_explain(wreckage(*2 * NO_MODULE, exits=(an_exit(0, 1, first=True),)))
    assert isinstance(said, Diagnosis)
    assert "a rank raised" in said.reason
    (unknown,) = said.unknown
    assert "the log has 2 such tracebacks" in unknown


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("KeyError", "'lr'"),
        ("ConnectionResetError", "[Errno 104] Connection reset by peer"),
        ("RuntimeError", "CUDA error: an illegal memory access was encountered"),
        ("AttributeError", "module 'torch' has no attribute 'cud'"),
        ("socket.gaierror", "[Errno -2] Name or service not known"),
    ],
)
def test_where_the_line_is_to_blame_nothing_else_is_advised(kind: str, text: str) -> None:
    assert exception_advice.of(kind, text) == ""


def test_run_advises_what_fits_and_says_where_the_traceback_is() -> None:
    missing = words("ModuleNotFoundError", "No module named 'torchvision'", where="train.py:3")
    (said,) = FAULT.ask_run(a_scene([a_rank(0), ended(1, 1, said=missing)]))
    assert isinstance(said, Verdict)
    assert said.fix.startswith("install the package that has `torchvision`")
    assert "; the whole traceback: " in said.fix
