"""What holds for all tests."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Generator
from pathlib import Path

import pytest
from _pytest.runner import runtestprotocol
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

import loop_guard

# A shell that runs the tests in the background has them ignore SIGINT, and every process they start would do so too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Servers of tests that run at the same time would all want the same port for health checks. Who wants one names it.
os.environ.setdefault("LAMINA_HTTP_LISTEN", "off")

# The tests start hundreds of processes. Where no bytecode is kept, each of them would compile all that it imports, and
# pytest, in each that plants a mistake, would prepare hypothesis anew: most of the time of such a test.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# What Spark is told for all its sessions, those of programs that tests run among them.
os.environ.setdefault("SPARK_CONF_DIR", str(Path(__file__).parent / "spark" / "conf"))

# Luck must not decide whether a change lands: make test draws the same examples in every run, and a slow machine is no
# failure. New ones are looked for in campaigns, where nobody waits for the answer. This comes before any test module is
# imported: settings(...) takes what it does not name from the profile that is loaded then.
_NO_CLOCK = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow], "print_blob": True}
_DEFAULT = settings.get_profile("default")
settings.register_profile("campaign", _DEFAULT, **_NO_CLOCK)
settings.register_profile("repeatable", _DEFAULT, derandomize=True, database=None, **_NO_CLOCK)
if os.environ.get("LAMINA_CAMPAIGN"):
    settings.load_profile("campaign")
else:
    settings.load_profile("repeatable")
    # One example in many is a constant of whichever sources are imported by then: a new line anywhere, or another order
    # of the tests, would change all that is drawn behind it. There is no setting for that; if the name is gone with
    # another version of hypothesis, this raises.
    pytest.MonkeyPatch().setattr(providers, "_get_local_constants", lambda: providers._local_constants)


_WAS_SLOW = pytest.StashKey[bool]()


# See loop_guard.py. Whichever test runs when something is found fails.
@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    result = yield
    found = loop_guard.take()
    if found and pyfuncitem.get_closest_marker("may_hold_up_the_loop") is None:
        pyfuncitem.stash[_WAS_SLOW] = all(map(loop_guard.is_of_time, found))
        pytest.fail("on the loop of a server:\n" + "\n".join(found[:5]), pytrace=False)
    return result


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool:
    """A shared machine takes the processor away from a thread and counts that as the thread's own time: 40 ms of a loop
    that needs 0.04 were seen. So a test that failed by the time of a callback alone is run once more.
    """
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    reports = runtestprotocol(item, nextitem=nextitem, log=False)
    if isinstance(item, pytest.Function) and item.stash.get(_WAS_SLOW, False):
        item._initrequest()
        reports = runtestprotocol(item, nextitem=nextitem, log=False)
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True
