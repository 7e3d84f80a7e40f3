"""What is done to a job from outside: one file for each kind of act, found by itself."""
