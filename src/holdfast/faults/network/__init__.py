"""Family 2: interfaces and paths."""
