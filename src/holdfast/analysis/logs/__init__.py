"""What is left of a dead job, and which ranks it points to: culprits, witnesses, suspects."""
