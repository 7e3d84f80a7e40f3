"""Family 9: launchers and schedulers."""
