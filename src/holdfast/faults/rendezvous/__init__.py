"""Family 1: rendezvous and ports."""
