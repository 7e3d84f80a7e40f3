"""What a script saves, where to, and whether it resumes."""
