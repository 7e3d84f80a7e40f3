"""Family 5: settings."""
