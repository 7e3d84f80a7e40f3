"""Observing the ranks, judging what is seen, deciding what to do about it."""
