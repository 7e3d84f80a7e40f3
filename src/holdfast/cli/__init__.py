"""The verbs: one thin file each; what they need is imported when they run."""
