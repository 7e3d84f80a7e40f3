"""Family 8: checkpoints and resume."""
