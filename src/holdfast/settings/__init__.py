"""AN ENVIRONMENT -> EVERY SETTING AND EVERY CLOCK IN FORCE.

    in_force.py   settings of environment, nccl.conf and command line, each judged
    clocks.py     every timeout that can end or hold this job, and whether their order is sound
    export.py     the minimal environment for this machine and job; presets
    one.py        all that is known of one variable
"""
