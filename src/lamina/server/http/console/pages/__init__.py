"""Pages of the console, a module for each entry of the menu. ``all_pages`` has them all."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Final

from starlette.routing import BaseRoute

from lamina.server.http.console.page import Page
from lamina.server.http.serving import Serving

MODULES: Final = ("overview", "logs", "jobs", "topics", "queues", "store", "pipeline", "server")


def _modules() -> list[ModuleType]:
    return [import_module(f"lamina.server.http.console.pages.{module}") for module in MODULES]


def more_routes(serving: Serving) -> list[BaseRoute]:
    """What is no page, such as a live tail: ``routes(serving)`` of the modules that have it."""
    return [route for module in _modules() if hasattr(module, "routes") for route in module.routes(serving)]


def all_pages() -> list[Page]:
    """In the order in which their paths are looked at."""
    return [page for module in _modules() for page in module.PAGES]
