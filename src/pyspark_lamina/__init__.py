"""Lets Spark find ``format("lamina")`` without being told: it looks for modules named ``pyspark_*``."""

from lamina.pipeline.source import LaminaSource as DefaultSource

__all__ = ["DefaultSource"]
