"""One thin file for each verb; what a verb needs is imported when it runs."""
