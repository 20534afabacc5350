"""What to do about damage of a store, in the words that every error about its files ends with."""

from __future__ import annotations

from typing import Final

DAMAGED: Final = 'run "lamina store verify" to see all damage, "lamina store repair" to mend it'
MISSING: Final = 'put it back from a backup, or go on without it: "lamina store repair --accept-loss"'
OF_A_BACKUP: Final = "take another backup"
