"""Which calls of a script talk to other ranks, over which backend, with which timeout."""
