"""Tables over the topic ``orders``: its entries as they come, and what they add up to."""

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.active()
TOPIC = os.path.join(os.environ["LAMINA_DATA"], "topics", "orders")


@dp.table
def sales() -> DataFrame:
    """One row per order, added as orders come."""
    entries = spark.readStream.format("lamina").load(TOPIC)
    return entries.where("kind = 'entry'").selectExpr(
        "time", "time_ns", "string(fields['user']) AS user", "int(string(fields['amount'])) AS amount"
    )


@dp.materialized_view
def sales_by_user() -> DataFrame:
    return spark.read.table("sales").groupBy("user").agg({"amount": "sum", "*": "count"})


@dp.materialized_view
def sales_by_hour() -> DataFrame:
    by_hour = spark.read.table("sales").selectExpr("date_trunc('hour', time) AS hour", "amount").groupBy("hour")
    return by_hour.agg({"amount": "sum"})
