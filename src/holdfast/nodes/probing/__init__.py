"""Nodes try the paths between them: they listen for each other, then each connects to all others.

The questions and answers are the same for `check` and for `run`; who asks is theirs.
"""
