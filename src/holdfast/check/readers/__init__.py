"""One reader for each fact of this machine, each in its own process with a deadline."""
