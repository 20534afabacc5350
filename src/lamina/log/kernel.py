"""The hot functions of the frame: compiled where the module could be built, Python where not.

``LAMINA_PURE=1`` in the environment forces the Python ones.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from types import ModuleType
from typing import Final

from lamina.log import frame


def _load() -> ModuleType:
    if os.environ.get("LAMINA_PURE") != "1":
        try:
            return importlib.import_module("lamina.log._speed")
        except ImportError:
            pass
    return frame


def _name(module: ModuleType) -> str:
    if module is frame:
        return "python"
    return "compiled, CRC instruction" if module.CRC_INSTRUCTION else "compiled"


_chosen: Final = _load()
NAME: Final = _name(_chosen)

crc32c: Callable[..., int] = _chosen.crc32c
encode_into: Callable[..., tuple[int, list[tuple[int, int]]]] = _chosen.encode_into
encode_many: Callable[..., bytes] = _chosen.encode_many
scan: Callable[..., frame.Scan] = _chosen.scan
