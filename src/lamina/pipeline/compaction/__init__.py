"""Compaction of the store in tasks that run anywhere (running.py), with the bytes of the one in a single process.

    1 gathering    a task per piece of the inputs: sorted runs of where the newest record of each key is (piece.py)
    2 merging      a task per range of places: which records stay, in order (ranges.py)
    3 cutting      here: which parts are kept, and where new ones are cut, from the sizes of records (cutting.py)
    4 writing      a task per new part: copies its records from where they are (writing.py)

No value is moved before the fourth step, and none twice. ``distributed.py`` is what calls them all.
"""

from __future__ import annotations

from lamina.twins import stand_in

IS_COMPILED = stand_in(__name__, "copying")
