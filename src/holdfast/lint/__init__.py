"""`holdfast lint`: what a user wrote -> findings."""
