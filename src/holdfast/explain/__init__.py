"""`holdfast explain`: what is left of a job -> cause, culprit, evidence, fix."""
