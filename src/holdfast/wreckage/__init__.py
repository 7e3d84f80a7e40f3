"""WRECKAGE -> DIAGNOSIS: from what is left of a job to the sentence a senior engineer would say.

opening     files, folders, archives, stdin: what there is to read, within bounds
scan        a log -> the lines that hold a known wording
heads       a line -> rank, host, pid, time and text, by the grammar of whoever wrote it
names       a file's name -> the rank, host or pid it belongs to
tracebacks  lines -> Python exceptions
dumps       flight-recorder files -> Recorder
stacks      py-spy and faulthandler output -> Stack
run_journal what the journal of a `holdfast run` tells
run_folder  the folder of such a run, on a disk or packed: which files to read
assemble    everything found -> Wreckage
gather      paths -> Wreckage: the whole way
hearsay     what `holdfast run` said then, weighed against what is seen now
diagnose    Wreckage -> Report: asks every fault, and puts the answers in order
"""
