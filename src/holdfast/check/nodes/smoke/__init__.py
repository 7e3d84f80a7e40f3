"""The smoke test between nodes: pairs of nodes in rounds, then all of them together.

The coordinator calls `coordinate.smoke`; every node answers by a `member.SmokeMember`, which holds
the node's ranks. Ranks import torch once and take part in many tests: a round costs what its
collectives cost, not the seconds of an import.
"""
