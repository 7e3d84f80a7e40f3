"""A checkpoint read elsewhere: beside the training, from an archive, on a read-only disk."""
