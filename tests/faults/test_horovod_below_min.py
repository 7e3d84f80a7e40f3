from tests.faults.table import passes_over, recognise_table, recognises
from tests.remains.made import wreckage

GAVE_UP = (
    "horovod.runner.common.util.timeout.TimeoutException: Timed out waiting for minimum number of "
    "slots to become available. Please check that you have enough resources to run at least 4 "
    "Horovod processes. Timeout after 600 seconds."
)

test_recognise = recognise_table(
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
