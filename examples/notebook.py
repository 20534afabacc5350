"""From a topic to a DataFrame: a notebook in plain Python, one cell per ``# %%``. It runs as a script, too.

pip install "lamina[spark]"
python examples/notebook.py
"""

# %% A data folder with something in it. With a server of yours: data = "the folder it was started with".
import random
import tempfile
from pathlib import Path

import lamina

data = Path(tempfile.mkdtemp(prefix="lamina-notebook-"))
with lamina.open(data) as folder:
    chance = random.Random(7)  # the same orders every time
    folder.topic("orders").publish_many(
        [{"user": f"user-{chance.randrange(20)}", "amount": str(chance.randrange(1, 500))} for _ in range(5000)]
    )
    for number in range(200):
        folder.jobs.add("invoice", f"order {number}".encode())

# %% A session that is set up for lamina. Any other works as well.
from lamina.pipeline import session

spark = session(master="local[2]")

# %% The topic is a table: no connector, no second copy.
orders = spark.read.format("lamina").load(str(data / "topics/orders"))
orders.printSchema()

# %% Fields are a map of bytes: name them and give them types once.
sales = orders.where("kind = 'entry'").selectExpr(
    "time", "string(fields['user']) AS user", "int(string(fields['amount'])) AS amount"
)
sales.createOrReplaceTempView("sales")
spark.sql("SELECT user, count(*) AS orders, sum(amount) AS total FROM sales GROUP BY user ORDER BY total DESC").show(5)

# %% What an engine makes of its log is a table, too: the jobs that are waiting now.
jobs = spark.read.format("lamina").option("view", "job_state").load(str(data))
jobs.groupBy("name", "state").count().show()

# %% Only what is needed: a schema is the projection, a time range leaves out files.
recent = spark.read.format("lamina").schema("time timestamp, size bigint").option("startingTimestamp", "-1h")
print("bytes of the last hour:", recent.load(str(data / "topics/orders")).agg({"size": "sum"}).first()[0])

# %% Done.
spark.stop()
