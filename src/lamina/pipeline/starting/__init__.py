"""A session of Spark that is set up for lamina: Java, defaults, and caches that shorten the start."""
