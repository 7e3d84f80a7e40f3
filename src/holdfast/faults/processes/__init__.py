"""Family 7: processes and kernel."""
