"""The witness in the ranks of a drilled job."""
