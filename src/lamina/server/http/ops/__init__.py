"""Operations, a module for each part of a server. ``all_operations`` has them all."""

from __future__ import annotations

from importlib import import_module
from typing import Final

from lamina.server.http.operations import AnyOperation

MODULES: Final = ("overview", "logs", "jobs", "topics", "queues", "store", "pipeline", "server")


def all_operations() -> dict[str, AnyOperation]:
    """By name."""
    found: dict[str, AnyOperation] = {}
    for module in MODULES:
        for operation in import_module(f"lamina.server.http.ops.{module}").OPERATIONS:
            assert operation.name not in found, operation.name
            found[operation.name] = operation
    return found
