"""The kernel: an append-only log of records in plain files.  Knows bytes, nothing of jobs or queues.

    Log         the writer of a folder: append, group commit, sync policy, rotation        writer.py, tail.py, commit.py
    Reader      reads a folder: from the start, as of a time, the last N, backwards        reader.py
    Cursor      a place in a log that moves forward and follows the live end               cursor.py

Below them, each a file: frame (one record), formats (kinds of file), naming (names of files), scan and index (reading
one file), segment (growing one file), attest (torn tail or damage?), recovery (what opening does), survey and repair
(looking through and mending a folder), rewrite (replacing sealed files), lock, sync (policies), files (the disk).
"""

from lamina.log.cursor import Cursor as Cursor
from lamina.log.options import LogOptions as LogOptions
from lamina.log.positions import Position as Position
from lamina.log.reader import Reader as Reader
from lamina.log.reader import Record as Record
from lamina.log.sync import ALWAYS as ALWAYS
from lamina.log.sync import OS as OS
from lamina.log.sync import Level as Level
from lamina.log.sync import Sync as Sync
from lamina.log.sync import interval as interval
from lamina.log.writer import Log as Log
from lamina.twins import stand_in

IS_COMPILED = stand_in(__name__, "reserve")
