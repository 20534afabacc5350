"""One file a job: a function of Python, and the work behind ``lamina pipeline NAME``."""
