"""holdfast makes distributed PyTorch training start, keep going and explain itself.

The map of this tree, in the order data flows through it:

    facts/        what can be known of one machine: frozen nouns, no I/O
    model.py      what we say about it: Evidence, Finding, Fault, Page
    wording.py    how we say durations, sizes, processes
    nic_filter.py how NCCL and Gloo read the names of interfaces they are given
    addresses.py  which interface carries an address, and what kind it is
    rendezvous.py where the ranks meet: master, endpoint, port
    errors.py     exceptions that carry what to do
    probe/        small tools that touch the world: bind, connect, fork with a deadline
    machine/      A MACHINE -> FACTS: one reader per kind of fact
    variables/    which program reads which environment variable
    faults/       THE CATALOGUE: one file per fault, pure
    catalogue.py  finds the faults, their pages, and asks them
    smoke/        A FEW RANKS -> which layer fails (the only room that imports torch)
    view/         draws the nouns as text and JSON
    cli/          one file per verb
"""

__version__ = "0.1.0"
