from tests.analysis.logs.patterns.made import wreckage
from tests.faults.table import explain_table, passes_over, recognises

UNFINISHED = (
    "RuntimeError: Expected to have finished reduction in the prior iteration before starting a "
    "new one. This error indicates that your module has parameters that were not used in "
    "producing loss."
)
INDICES = "Parameter indices which did not receive grad for rank 3: 282 283 "
NAMES = "Parameters which did not receive grad for rank 3: head.bias, head.weight"

test_explain = explain_table(
    "unused-parameters",
    recognises(
        wreckage(f"[rank3]: {UNFINISHED}", INDICES),
        sure=0.95,
        rank=3,
        what="parameters 282 283",
        saying=["rank 3", "282 283", "find_unused_parameters=True", "TORCH_DISTRIBUTED_DEBUG"],
    ),
    recognises(  # the names are known: nothing has to be asked for
        wreckage(UNFINISHED, INDICES, NAMES),
        sure=0.95,
        rank=3,
        what="head.bias, head.weight",
        saying=["head.weight"],
        not_saying=["TORCH_DISTRIBUTED_DEBUG"],
    ),
    recognises(  # the first line is cut away
        wreckage(INDICES), sure=0.95, rank=3, what="282", saying=["282 283"]
    ),
    recognises(  # several ranks: none is singled out
        wreckage(INDICES, INDICES.replace("rank 3", "rank 1")),
        sure=0.95,
        saying=["ranks 1,3"],
        what="282 283",
    ),
    recognises(  # wrapped by a terminal in the middle of the sentence
        wreckage("es that your module has parameters that were not used in producing loss."),
        sure=0.95,
        saying=["took no part in the last loss"],
    ),
    recognises(
        wreckage(
            "[rank0]: RuntimeError: Your training graph has changed in this iteration, e.g., one "
            "parameter is unused in first iteration, but then got used in the second iteration. "
            "this is not compatible with static_graph set to True."
        ),
        sure=0.92,
        rank=0,
        saying=["static_graph"],
    ),
    recognises(
        wreckage(
            "[rank1]: RuntimeError: Expected to mark a variable ready only once. This error is "
            "caused by one of the following reasons:",
            "Parameter at index 5 with name head.weight has been marked as ready twice.",
        ),
        sure=0.6,
        rank=1,
        what="head.weight",
        saying=["twice", "use_reentrant=False"],
    ),
    passes_over(  # only a hint that the flag is not needed
        wreckage(
            "[W reducer.cpp:1389] Warning: find_unused_parameters=True was specified in DDP "
            "constructor, but did not find any unused parameters in the forward pass."
        )
    ),
    passes_over(wreckage("[rank0]: RuntimeError: DDP expects same model across all ranks")),
)
