"""What a user wrote, as lint sees it: frozen nouns and an index of Python code; no I/O.

    the nouns
    place.py             file, line, column
    nouns.py             Source: one piece of a file, with the settings, commands, launches and
                         containers found in it, whatever language it is written in
    program.py           Program: a Python script with its calls resolved through its imports
    tree_walk.py         the one walk over its tree
    doubt.py             what does not fit together, in words, before a fault signs it

    recipes, in any language
    recipe.py            questions that several rules ask of a launch, a command or a word
    together.py          which settings meet in the environment of one process
    containers.py        questions about a container somebody starts
    counts.py            processes, devices and machines that do not add up
    master.py            where the ranks are to meet: addresses and ports
    own_names.py         where every machine would name itself as the master
    meeting.py           torchrun's rendezvous: options that contradict or leave it open
    one_job.py           launches that are nodes of one job, and disagree
    port_loops.py        loops that look for a free port
    drawn_ports.py       which numbers `$(( 40000 + RANDOM % 20000 ))` can give
    killing.py           commands that end processes: what they aim at
    ulimits.py           limits that a recipe sets
    releases.py          versions that exist
    spot.py              signs that the machines may be taken away

    what a script's names and lines mean
    names.py             every value that each name is given, scope by scope
    flow.py              loops, guards, and what calls what
    durations.py         numbers and lengths of time, as far as they are written out
    handling.py          which `try` stands around a call, what it catches, how its handlers end
    text_tests.py        how a handler looks for words in an exception

    who talks to whom
    torch_calls.py       which calls are collectives, and what they accept
    exchanges.py         every place that talks to other ranks, also one call deep; the backend
    collective_calls.py  calls at which ranks meet, the frameworks' included
    init_calls.py        how a script joins its group
    backends.py          whether the backend exists and fits the tensors
    timeouts.py          where a timeout is given, and what that place takes
    group_timeouts.py    groups beside the default one, and the timeout each will have
    ring.py              messages that every rank sends, or waits for, first

    which ranks come to a line
    rank_words.py        how people call their ranks
    ranks.py             what differs from rank to rank
    split.py             whom a condition lets through
    guards.py            conditions around code
    ways.py              which meetings lie on a way, and where it ends
    parting.py           meetings that some ranks miss
    by_rank.py           whether every rank comes to a line
    swallowed.py         errors that one rank swallows, and a meeting with them
    shares.py            loops whose length follows the rank

    child processes and devices
    processes.py         which functions run in child processes, and what they are given
    start_method.py      fork, spawn or forkserver
    importing.py         what starts processes while a file is imported
    memory.py            what a value is, as far as children care
    writes.py            where a function changes what it did not make
    set_by_parent.py     what the parent sets in its module, and its children read
    set_by_parent.py     variables that only the parent has set, and children read
    producers.py         senders that may end before anybody has read
    placement.py         how each rank gets a GPU of its own
    cuda.py              where a script touches CUDA
    forked_cuda.py       CUDA touched before a fork, and in the child

    checkpoints and restarts
    saving.py            what torch.save writes, where to and how often
    paths_saved.py       whether a path is the same at every save
    training.py          the parts whose state a checkpoint must hold
    epochs.py            loops over epochs and batches
    resuming.py          whether a script goes on from what was saved
    elastic.py           whether it is started again, or with another number of ranks

Readers (lint/) turn text into these; the `lint` faces of the faults judge them.
"""
