"""Compiled twins: modules that setup.py compiled from their own Python source, and that then stand in for it.

``LAMINA_PURE=1`` in the environment forces the Python ones.
"""

from __future__ import annotations

import importlib
import os
import sys


def stand_in(package: str, *names: str) -> bool:
    """Let the compiled ``_name`` be what an import of ``package.name`` gives. False if one is not there.

    Call it while the package is being imported, with the names in the order in which they import each other.
    """
    if os.environ.get("LAMINA_PURE") == "1":
        return False
    for done, name in enumerate(names):
        try:
            twin = importlib.import_module(f"{package}._{name}")
        except ImportError:
            for taken in names[:done]:  # all of them or none: they are made for each other
                del sys.modules[f"{package}.{taken}"]
                delattr(sys.modules[package], taken)
            return False
        sys.modules[f"{package}.{name}"] = twin
        setattr(sys.modules[package], name, twin)
    return True
