"""Trainings by hand, without holdfast: each breaks one promise, careful.py breaks none."""
