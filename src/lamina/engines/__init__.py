"""State machines on the log kernel, each with its codec, its state and the engine that ties both to a log."""
