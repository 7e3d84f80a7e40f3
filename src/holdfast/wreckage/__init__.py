"""WRECKAGE -> DIAGNOSIS: from what is left of a job to the sentence a senior engineer would say.

Files to bytes
    opening, folders, streams, archives   what there is to read, packed or not, within bounds
    escapes          terminal escapes and control characters, taken out of what is quoted
    wrapping         text that a terminal cut at its width, whole again
Bytes to findings
    scan             a log -> the lines that hold a known wording
    heads, moments   a line -> rank, host, pid, time and text, by the grammar of its writer
    names            a file's name -> the rank, host or pid it belongs to
    log              one log -> sightings, exceptions, first and last lines
    tracebacks       lines -> Python exceptions
    dumps            flight-recorder files -> Recorder, read in a process of small means
    stacks, ras, documents   py-spy and faulthandler output; ncclras; torchrun's error.json
    run_folder, run_journal  the folder of a `holdfast run`, on a disk or packed
Findings to Wreckage
    findings         everything found so far, in bounded memory
    exits, settings, whos_who, watchdog_words   how processes ended, who was who, where they were
    assemble         all of it -> Wreckage
    gather           paths -> Wreckage: the whole way
    from_scene       a job that still lives -> Wreckage
Wreckage to Diagnosis
    hearsay          what `holdfast run` said then, weighed against what is seen now
    diagnose         asks every fault, and puts the answers in order
"""
