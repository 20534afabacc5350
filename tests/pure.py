"""Modules from their Python source, beside the compiled twins that stand in for them."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest


def load_pure(package: ModuleType, name: str, **shown: ModuleType) -> ModuleType:
    """A module of ``package``, seeing ``shown`` instead of the package's own modules."""
    spec = importlib.util.spec_from_file_location(f"pure_{name}", Path(package.__path__[0]) / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        for other, stand_in in shown.items():
            patch.setattr(package, other, stand_in)
            patch.setitem(sys.modules, f"{package.__name__}.{other}", stand_in)
        spec.loader.exec_module(module)
    return module
