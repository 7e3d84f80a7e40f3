"""Rules of the user's own: what a line of the log means, and when one is missing."""
