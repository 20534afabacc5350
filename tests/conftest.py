"""What holds for all tests."""

from __future__ import annotations

import signal

# A shell that runs the tests in the background has them ignore SIGINT, and every process they start would do so too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
