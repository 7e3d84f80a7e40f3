from tests.analysis.logs.patterns.made import wreckage
from tests.analysis.source.made_sources import python, shell
from tests.faults.table import explain_table, flags, leaves, lint_table, passes_over, recognises

GAVE_UP = (
    "horovod.runner.common.util.timeout.TimeoutException: Timed out waiting for minimum number of "
    "slots to become available. Please check that you have enough resources to run at least 4 "
    "Horovod processes. Timeout after 600 seconds."
)

test_explain = explain_table(
    "horovod-below-min",
    recognises(wreckage(GAVE_UP), sure=0.93, what="--min-np 4", saying=["--min-np 4", "600 s"]),
    recognises(
        wreckage("INFO:root:blacklist failing host: node07", GAVE_UP),
        sure=0.93,
        what="node07",
        saying=["node07", "--blacklist-cooldown-range"],
    ),
    recognises(  # cut after the first words
        wreckage("Timed out waiting for minimum number of slots to become available."),
        sure=0.93,
        what="--min-np",
        saying=["fewer slots than --min-np"],
    ),
    recognises(
        wreckage("ERROR:root:blacklisted slots count == 8 -> stop running"),
        sure=0.93,
        what="--min-np",
        saying=["fewer slots"],
    ),
    passes_over(wreckage("INFO:root:blacklist failing host: node07")),
    passes_over(
        wreckage("Timed out waiting for tasks to start. Please check connectivity between servers.")
    ),
)

test_lint = lint_table(
    "horovod-below-min",
    flags(
        "note",
        shell("export HOROVOD_ELASTIC_TIMEOUT=60\nhorovodrun -np 8 --min-np 4 python x.py\n"),
        lines=[1],
        saying=["sooner than by default (600 s)", "--elastic-timeout 1800"],
    ),
    flags(
        "error",
        python('import os\nos.environ["HOROVOD_ELASTIC_TIMEOUT"] = "10m"\n'),
        lines=[2],
        saying=["not a number of seconds", "ValueError"],
    ),
    flags(
        "warning",
        shell("horovodrun -np 8 --elastic-timeout 0 --min-np 4 python x.py\n"),
        lines=[1],
        saying=["means 600 s"],
    ),
    flags(
        "note",
        shell("horovodrun -np 8 --min-np 4 --elastic-timeout 30 python x.py\n"),
        lines=[1],
        saying=["--elastic-timeout 30"],
    ),
    flags(
        "note",
        shell("HOROVOD_ELASTIC_TIMEOUT=1200 horovodrun -np 8 --elastic-timeout 900 python x.py\n"),
        lines=[1],
        saying=["900 overrides"],
    ),
    leaves(shell("export HOROVOD_ELASTIC_TIMEOUT=1800\nhorovodrun -np 8 python x.py\n")),
    leaves(shell("export HOROVOD_ELASTIC_TIMEOUT=$T\nunset HOROVOD_ELASTIC_TIMEOUT\n")),
)
