"""Tools for testing code that must not lose data.  Public, and what lamina itself is tested with.

    MemoryFiles   a disk in memory
    FaultyFiles   a disk that fails when told to (the n-th write, sync or rename; short writes; ENOSPC, EIO)
    PowerLoss     a disk that remembers, and yields every state that a power cut could have left
    ManualClock   a clock that moves only when told to
    Guard         finds what waits for a disk, or works for long, on the event loop of a server

docs/how-to/test-crashes.md shows them at work.
"""

from lamina.clock import ManualClock as ManualClock
from lamina.log.files.faulty import Fault as Fault
from lamina.log.files.faulty import FaultyFiles as FaultyFiles
from lamina.log.files.memory import MemoryFiles as MemoryFiles
from lamina.testing.guard import Guard as Guard
from lamina.testing.powerloss import PowerLoss as PowerLoss
from lamina.testing.powerloss import PowerLossState as PowerLossState
