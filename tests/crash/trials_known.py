"""Classes of damage that may be lost in silence: the trials (test_damage_trials.py) must find no others.

Take a class out when it is mended; ``make campaign`` lists those that were not silent once.
"""

from __future__ import annotations

from typing import Final

_KEPT_BACK: Final = "the start heals it with what stands beside it, which a backup does not have"
_GROWING: Final = (
    "killed: of a file that grows only watermarks after the place, its index, kept now and then, and the manifest, "
    "which has its first sync, vouch for what was synced"
)
_CUTS: Final = ("cut at a record", "cut within one", "zero")

KNOWN_SILENT: Final[dict[str, dict[tuple[str, str], str]]] = {
    "closed": {
        ("queues: layout", "flip"): _KEPT_BACK,
        ("queues: state", "flip"): _KEPT_BACK,
        ("queues: state", "older"): _KEPT_BACK,
    },
    "killed": {
        **{("queues: state", damage): _KEPT_BACK for damage in ("cut at a record", "flip", "older")},
        **{
            (f"{part}: newest file", damage): _GROWING
            for part in ("groups", "jobs", "logs", "queues", "server's logs", "topics")
            for damage in _CUTS
        },
        **{
            (f"{part}: only file", damage): _GROWING
            for part in ("server's logs", "topics")
            for damage in (*_CUTS, "cut to 0", "remove", "older")
        },
    },
}
