"""Build of the compiled modules.  Everything else about the package is in pyproject.toml.

They are optional: without a C compiler the build goes on and lamina runs on their Python twins. Some twins are
written for the purpose; the others are compiled from their Python source as it stands (lamina/twins.py), with types
where a .pxd file beside it gives them.
"""

from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

BY_HAND = (
    "lamina.log._speed",
    "lamina.engines._lock",
    "lamina.engines.jobs._packing",
    "lamina.engines.queues._ids",
    "lamina.engines.store._columns",
    "lamina.engines.store._packing",
    "lamina.engines.store._table",
    "lamina.engines.topics._entries",
    "lamina.pipeline._columns",
    "lamina.pipeline.compaction._copying",
    "lamina.server.workq._quick",
    "lamina.server.resp._entry_replies",
    "lamina.server.resp._protocol",
)
by_hand = [
    Extension(
        name,
        [str(Path("src", *name.split(".")).with_suffix(".pyx"))],
        depends=["src/lamina/log/_crc32c.h"],
        extra_compile_args=["-O3"],
    )
    for name in BY_HAND
]
AS_WRITTEN = {
    "lamina.log": ("reserve",),
    "lamina.engines": ("loops", "journal", "logged"),
    "lamina.engines.jobs": ("codec", "job", "core", "checkpoint", "engine"),
    "lamina.engines.queues": ("message", "codec", "state", "memory", "engine", "deliveries"),
    "lamina.engines.topics": (
        "ids",
        "ranges",
        "state",
        "sorted_map",
        "group_codec",
        "group_state",
        "group_claims",
        "tail",
        "finding",
        "contents",
        "topic",
        "groups",
        "group_views",
        "topics",
    ),
    "lamina.server": ("turns", "client"),
    "lamina.server.workq": ("parse", "replies", "answers", "door"),
    "lamina.server.resp": (
        "replies",
        "session",
        "dispatch",
        "runs",
        "stream_adding",
        "stream_reading",
        "group_pending",
        "group_reading",
        "queue_commands",
        "answers",
        "waiting",
        "door",
    ),
}
twins = [
    Extension(
        f"{package}._{name}",
        [str(Path("src", *package.split("."), f"{name}.py"))],
        extra_compile_args=["-O2"],
    )
    for package, names in AS_WRITTEN.items()
    for name in names
]

modules = cythonize(by_hand, language_level=3)
# Annotations are for people and mypy: C types come from the .pxd files alone. Always all of them: one that was made for
# another layout of a class it shares would crash.
modules += cythonize(
    twins, language_level=3, force=True, compiler_directives={"annotation_typing": False, "binding": True}
)
for module in modules:
    module.optional = True  # cythonize forgets it

setup(ext_modules=modules)
