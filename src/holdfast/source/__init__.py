"""What a user wrote, as lint sees it: frozen nouns and an index of Python code; no I/O.

    place.py        file, line, column
    nouns.py        Source: one piece of a file, with the settings, commands, launches and
                    containers found in it, whatever language it is written in
    program.py      Program: a Python script with its calls resolved through its imports
    together.py     which settings of a source meet in the environment of one process
    recipe.py       questions that several rules ask of a launch, a command or a word; beside it
                    containers.py, master.py, killing.py, port_loops.py, drawn_ports.py,
                    ulimits.py, spot.py (machines that may be taken away), releases.py
    doubt.py        what does not fit together, in words: meeting.py (torchrun's rendezvous) and
                    counts.py (processes, devices, machines) find it
    names.py        what the names of a script stand for; flow.py: loops, guards, what calls what
    processes.py    which functions run in child processes, and what they are given; beside it
                    start_method.py, memory.py and writes.py (what is shared, what they change),
                    importing.py (started on import), cuda.py and forked_cuda.py
    saving.py       what torch.save writes, where to and how often; beside it paths_saved.py,
                    by_rank.py, training.py, epochs.py, resuming.py, elastic.py
    torch_calls.py  which calls of torch and the frameworks are collectives, and what they accept
    exchanges.py    every place that talks to other ranks, also one call deep; the backend
    handling.py     which `try` stands around a call, what it catches, how its handlers end
    text_tests.py   how a handler looks for words in an exception, to be tried on real texts
    durations.py    numbers and lengths of time, as far as they are written out
    timeouts.py     where a timeout is given, and what that place takes
    group_timeouts.py  groups beside the default one, and the timeout each will have
    ranks.py        what differs from rank to rank, and whom a condition lets through (split.py);
                    rank_words.py: how people call their ranks; guards.py: conditions around code
    parting.py      meetings that some ranks miss; collective_calls.py: calls at which ranks meet,
                    ways.py: which of them lie on a way; swallowed.py, shares.py (uneven loops)
    init_calls.py   how a script joins its group; backends.py, placement.py (whose GPU),
                    producers.py (senders that end too early)
    ring.py         messages that every rank sends, or waits for, first

Readers (lint/) turn text into these; the `lint` faces of the faults judge them.
"""
