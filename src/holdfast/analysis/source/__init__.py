"""What a user wrote: one `Source` for every language, and Python with its names resolved."""
