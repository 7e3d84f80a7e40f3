"""AN ENVIRONMENT -> EVERY SETTING AND EVERY CLOCK IN FORCE.

    nouns.py         what is asked about (Job); what is said stands in holdfast/judged.py
    in_force.py      settings of environment, nccl.conf and command line, each judged
    readers.py       who reads a variable here, and why nobody does
    overriding.py    what a launcher makes of the variables it is started with
    script.py        the timeouts that a script gives itself
    spans.py         durations as schedulers write them
    clocks.py        every timeout that can end or hold this job
    clock_faces/     torch's, NCCL's, the launchers' and the outer world's clocks
    order.py         whether the order of the clocks is sound
    one.py           all that is known of one variable
    export.py        the minimal environment for this machine and job
    presets.py       what helps in a first run and in production
    nic_choice.py    which interface NCCL takes by itself, and whether that is the right one

All of it is pure: cli/env.py reads the machine, the command line and the script.
"""
