"""``write`` and ``writeStream``: DataFrames published into topics, once per query and batch."""
