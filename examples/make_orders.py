"""A data folder with a topic of orders: ``python make_orders.py FOLDER [COUNT]``."""

import random
import sys

import lamina

folder, count = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 10_000
chance = random.Random(7)
with lamina.open(folder) as data:
    for _ in range(0, count, 1000):
        data.topic("orders").publish_many(
            [{"user": f"user-{chance.randrange(100)}", "amount": str(chance.randrange(1, 500))} for _ in range(1000)]
        )
