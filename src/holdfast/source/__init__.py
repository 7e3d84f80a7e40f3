"""What a user wrote, as lint sees it: frozen nouns and an index of Python code; no I/O.

    place.py        file, line, column
    nouns.py        Source: one piece of a file, with the settings, commands, launches and
                    containers found in it, whatever language it is written in
    program.py      Program: a Python script with its calls resolved through its imports
    torch_calls.py  which calls of torch and the frameworks are collectives, and what they accept

Readers (lint/) turn text into these; the `lint` faces of the faults judge them.
"""
