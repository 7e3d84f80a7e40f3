"""PURE: what was seen, and the questions that faults ask about it. No I/O."""
