"""The workq server against beanstalkd: the same load on both, each a process of its own that keeps its jobs on disk."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable

from bench import rivals
from bench.job_driver import BEANSTALK, PHASES, WORKQ, Pace, run, wake_ups
from bench.runner import Case, Context, Result, interleave

JOBS = {"interval": 40_000, "always": 4_000}  # fewer where beanstalkd syncs each
SYNC_MS = {"interval": 1000, "always": 0}
ROUNDS = {"interval": 7, "always": 5}
HELD = 500  # leased jobs a connection has at most, in the case that limits them
WAKE_UPS = 2000
WAKE_UP_MS = 5.0

Paces = dict[str, Pace]
Figures = dict[str, dict[str, list[float]]]


def measure(context: Context, policy: str, held: int | None = None) -> Figures:
    """By figure and by phase, one value of each round. All phases come from the same runs, which are done once."""
    key = f"jobs_{policy}_{held}"
    if key not in context.kept:
        rivals.find_beanstalkd()
        jobs = context.scaled(JOBS[policy], 80)
        found: dict[str, list[Paces]] = {"ours": [], "base": []}

        def keep(side: str, paces: Paces) -> float:
            found[side].append(paces)
            return paces["add"].rate

        def ours() -> float:
            sync_ms = SYNC_MS[policy] or None
            with rivals.workq_server(context.fresh("workq"), policy, sync_ms) as address:
                return keep("ours", run(address, WORKQ, jobs, held))

        def base() -> float:
            with rivals.beanstalkd(context.fresh("beanstalkd"), SYNC_MS[policy]) as address:
                return keep("base", run(address, BEANSTALK, jobs, held))

        interleave(ours, base, ROUNDS[policy] if context.scale >= 1 else 1, statistics.median)
        figures = {
            f"{side} {figure}": {phase: [take(paces[phase]) for paces in found[side]] for phase in PHASES}
            for side in found
            for figure, take in _FIGURES.items()
        }
        context.kept[key] = json.dumps(figures)
    kept: Figures = json.loads(context.kept[key])
    return kept


_FIGURES: dict[str, Callable[[Pace], float]] = {
    "rates": lambda pace: pace.rate,
    "driver": lambda pace: pace.busy,
    "commands": lambda pace: pace.commands,
}


def compare(context: Context, policy: str, phase: str, held: int | None = None) -> Result:
    values = {name: by_phase[phase] for name, by_phase in measure(context, policy, held).items()}
    extra = {
        "jobs": int(values["ours commands"][0]),
        "ours rounds": values["ours rates"],
        "base rounds": values["base rates"],
        "driver busy, ours": statistics.median(values["ours driver"]),
        "driver busy, base": statistics.median(values["base driver"]),
    }
    return Result(statistics.median(values["ours rates"]), statistics.median(values["base rates"]), extra)


def wake_up(context: Context) -> Result:
    with rivals.workq_server(context.fresh("workq"), "interval", 1000) as address:
        times = sorted(1000 * seconds for seconds in wake_ups(address, context.scaled(WAKE_UPS, 100)))
    extra = {"median": statistics.median(times), "worst": times[-1], "adds": len(times)}
    return Result(times[len(times) * 99 // 100 - 1], WAKE_UP_MS, extra)


_WORDS = {"add": ("add", "put"), "lease": ("lease", "reserve"), "complete": ("complete", "delete")}
_POLICIES = {"interval": "synced every 1000 ms, base -f 1000", "always": "each synced before its reply, base -f 0"}
_NOTES = {
    "add": "",
    "lease": "A lease is in our log and survives a crash; beanstalkd writes nothing for it. ",
    "complete": "beanstalkd goes through all the jobs a connection holds for each one. ",
}


def _case(policy: str, phase: str, bar: float) -> Case:
    ours, base = _WORDS[phase]
    what = (
        f"{ours} of jobs of 100 B over 8 connections with 16 commands in flight each, {_POLICIES[policy]}, median of "
        f"several runs; base: {base} of beanstalkd under the same load. {_NOTES[phase]}All jobs are added, then all "
        "leased, then all completed. Not included: the other phases, starting the server, building requests, checking "
        "replies"
    )
    return Case(f"jobs_{phase}_{policy}", "jobs/s", what, lambda context: compare(context, policy, phase), bar)


CASES = [
    *(_case("interval", phase, 0.8) for phase in PHASES),
    Case(
        "jobs_complete_held_500",
        "jobs/s",
        f"as jobs_complete_interval, but a connection never holds more than {HELD} leased jobs: it completes them "
        "before it leases more, which does not slow beanstalkd down. Not included: leasing them",
        lambda context: compare(context, "interval", "complete", HELD),
        bar=0.8,
    ),
    *(_case("always", phase, 5.0) for phase in PHASES),
    Case(
        "jobs_wakeup",
        "ms",
        "p99 from sending an add until its job is at one of 64 connections that wait in lease, each at 4 of 16 names, "
        "one job after another; base: what it may take. Not included: completing the job and waiting again",
        wake_up,
        bar=1.0,
        less_is_better=True,
    ),
]
