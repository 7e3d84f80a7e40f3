"""A run on several machines: launchers observe and send, the coordinator decides."""
