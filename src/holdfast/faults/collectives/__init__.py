"""Family 6: collectives and code."""
