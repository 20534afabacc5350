"""limestone-manifest.json: that the folder is one of limestone's, and which version of its format it has.

    {"format_version":"1.1","instance_uuid":"...","persistent_format_version":7}

    1  the first with a manifest      2  catalog and compacted file      3  blobs      5  instance_uuid
    6  end marks                      4, 7  nothing that is on disk

While it is replaced there is a copy of it in ``.back``, which counts when the manifest itself cannot be read.
"""

from __future__ import annotations

import json
from typing import Final

from lamina.engines.store.limestone.source import BACK, MANIFEST, Source, damaged
from lamina.errors import Corruption, WrongFormat

NEWEST_VERSION: Final = 7
END_MARKS_SINCE: Final = 6
CATALOG_SINCE: Final = 2

_MOST: Final = 1 << 20


def read_version(source: Source, repairs: list[str]) -> int:
    """The version of the format.

    Raises: WrongFormat if there is no manifest, or its version is not one of 1..7; Corruption if it cannot be read, nor
    its copy.
    """
    copy = MANIFEST + BACK
    if MANIFEST not in source and copy not in source:
        raise WrongFormat(MANIFEST, f"it is missing: {source.folder} is no folder of limestone, or one of version 0")
    try:
        if MANIFEST not in source:
            raise damaged(MANIFEST, 0, "it is missing")
        found = _parse(source.read_whole(MANIFEST, _MOST), MANIFEST)
    except Corruption as problem:
        if copy not in source:
            raise
        try:
            found = _parse(source.read_whole(copy, _MOST), copy)
        except Corruption:
            raise problem from None
        repairs.append(f"{MANIFEST}, byte 0: {problem.reason}: {copy} was used")
    layout, version = found
    if not 1 <= version <= NEWEST_VERSION or layout.partition(".")[0] != "1":
        reason = f"format {layout}, version {version} is not one of 1 to {NEWEST_VERSION}"
        raise WrongFormat(MANIFEST, reason, hint="a later version of limestone wrote it; nothing was changed")
    return version


def _parse(data: bytes, name: str) -> tuple[str, int]:
    try:
        values = json.loads(data)
        layout, version = values["format_version"], values["persistent_format_version"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise damaged(name, 0, "it is no manifest") from error
    if not isinstance(layout, str) or type(version) is not int:
        raise damaged(name, 0, "its versions are none")
    return layout, version
