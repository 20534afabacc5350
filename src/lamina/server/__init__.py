"""The doors of lamina: what listens, and how each protocol becomes commands of an engine."""
