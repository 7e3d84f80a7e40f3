"""What is left of a job that is over, and whom it points to: culprits, witnesses, suspects."""
