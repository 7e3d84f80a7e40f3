"""Family 4: host limits and containers."""
