from holdfast.remains.nouns import Line, Raised
from tests.faults.table import passes_over, recognise_table, recognises
from tests.remains.made import wreckage

REFUSED = (
    "RuntimeError: ",
    "        An attempt has been made to start a new process before the",
    "        current process has finished its bootstrapping phase.",
)
CHILD = (
    '  File "<string>", line 1, in <module>',
    '  File "/usr/lib/python3.11/multiprocessing/spawn.py", line 122, in spawn_main',
    '  File "/usr/lib/python3.11/multiprocessing/spawn.py", line 297, in _fixup_main_from_path',
    '  File "<frozen runpy>", line 88, in _run_code',
    '  File "/home/me/train.py", line 41, in <module>',
    '  File "/home/me/pool.py", line 7, in <module>',
)
NO_TORCH = Raised(
    kind="ModuleNotFoundError",
    text="No module named 'torch'",
    line=Line(text="ModuleNotFoundError", source="job.log", number=9),
)

test_recognise = recognise_table(
    "missing-main-guard",
    recognises(
        wreckage(*CHILD, *REFUSED),
        sure=0.96,
        what="train.py line 41",
        saying=["train.py starts processes at its top level", "__main__"],
    ),
    recognises(  # the parent's start is cut away; the frame above the refusal is the script's
        wreckage('ials/dqn.py", line 568, in <module>', *REFUSED[1:]),
        sure=0.96,
        what="dqn.py line 568",
        saying=["dqn.py"],
    ),
    recognises(  # nothing but one line of the message
        wreckage('        The "freeze_support()" line can be omitted if the program'),
        sure=0.96,
        saying=["the script starts processes"],
    ),
    recognises(  # a child in the middle of the script, however that ended
        wreckage(*CHILD), sure=0.75, what="train.py line 41", saying=["began its work again"]
    ),
    passes_over(wreckage(*CHILD, raised=(NO_TORCH,))),  # an honest import that failed
    passes_over(wreckage(*CHILD[:2], "EOFError: Ran out of input")),
    passes_over(wreckage('  File "/home/me/train.py", line 41, in <module>', "    main()")),
)
