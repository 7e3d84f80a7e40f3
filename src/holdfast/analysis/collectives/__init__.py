"""Which rank is in which collective and which rank waits for which, from recorders and stacks."""
