"""``readStream``: the log as a stream, its position the time of a record."""
