"""The command line of the benchmarks: ``python -m bench --help``."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from bench import (
    cases_append,
    cases_asof,
    cases_big,
    cases_bystander,
    cases_client,
    cases_group,
    cases_jobs,
    cases_jobs_engine,
    cases_large_replies,
    cases_manifest,
    cases_pipeline,
    cases_queues_dump,
    cases_queues_restore,
    cases_queues_scale,
    cases_queues_wire,
    cases_scan,
    cases_spark,
    cases_spark_compact,
    cases_store,
    cases_store_wire,
    cases_topics_delivery,
    cases_topics_engine,
    cases_topics_files,
    cases_topics_many,
    cases_topics_restart,
    cases_topics_sparse,
    cases_topics_wire,
)
from bench.runner import Case, Context, Skipped

CASES = [
    *cases_append.CASES,
    *cases_scan.CASES,
    *cases_group.CASES,
    *cases_manifest.CASES,
    *cases_big.CASES,
    *cases_jobs.CASES,
    *cases_jobs_engine.CASES,
    *cases_topics_wire.CASES,
    *cases_topics_delivery.CASES,
    *cases_topics_files.CASES,
    *cases_topics_restart.CASES,
    *cases_topics_many.CASES,
    *cases_topics_engine.CASES,
    *cases_client.CASES,
    *cases_queues_wire.CASES,
    *cases_queues_dump.CASES,
    *cases_queues_restore.CASES,
    *cases_queues_scale.CASES,
    *cases_store.CASES,
    *cases_store_wire.CASES,
    *cases_spark.CASES,
    *cases_pipeline.CASES,
    *cases_asof.CASES,
    *cases_spark_compact.CASES,
    *cases_topics_sparse.CASES,
    *cases_large_replies.CASES,
    *cases_bystander.CASES,
]
DEFAULT_FOLDER = ".bench"  # on the disk of the project, for the temporary folder of the system may be memory
NOTABLE = 0.10

Row = dict[str, Any]


def main() -> int:
    words = _parser().parse_args()
    if words.command == "compare":
        print_changes(_read(words.a), _read(words.b))
        return 0
    cases = choose(words.case)
    if words.list:
        for case in cases:
            print(f"{case.name:<30} {case.unit:<13} {case.what}")
        return 0
    if not cases:
        print(f"no case is called so: {', '.join(words.case)}; see --list", file=sys.stderr)
        return 2
    rows, crashed = run(cases, words.dir, words.scale)
    if words.json:
        with open(words.json, "w") as out:
            json.dump(rows, out, indent=1)
            out.write("\n")
    else:
        print_table(rows)
    return 1 if crashed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Benchmarks, as ratios to the raw machine.")
    parser.add_argument("--case", action="append", default=[], metavar="NAME", help="a case, or how its name begins")
    parser.add_argument("--json", metavar="OUT", help="write the figures there instead of showing a table")
    parser.add_argument("--list", action="store_true", help="show the cases and what each measures")
    parser.add_argument("--scale", type=float, default=1.0, help="1.0 is the full size; 0.01 only shows that it runs")
    parser.add_argument("--dir", metavar="FOLDER", help=f"where files go while it runs (default: {DEFAULT_FOLDER})")
    commands = parser.add_subparsers(dest="command", metavar="compare A.json B.json")
    compare = commands.add_parser("compare", help="ratios of two runs, B against A; changes over 10 %% are flagged")
    compare.add_argument("a", metavar="A.json")
    compare.add_argument("b", metavar="B.json")
    return parser


def choose(names: list[str]) -> list[Case]:
    """Cases called so, or whose names begin so if none is; all of them without a name."""
    if not names:
        return CASES
    exact = {case.name for case in CASES}
    return [
        case
        for case in CASES
        if any(case.name == name if name in exact else case.name.startswith(name) for name in names)
    ]


def run(cases: list[Case], folder: str | None, scale: float) -> tuple[list[Row], bool]:
    """Run cases one after another. What they make on disk is gone afterwards. Returns the rows; did any crash?"""
    rows: list[Row] = []
    crashed = False
    with _room(folder) as path:
        context = Context(path, scale)
        for number, case in enumerate(cases, 1):
            context.say(f"{number}/{len(cases)} {case.name}")
            try:
                rows.append(case.row(case.run(context)))
            except Skipped as why:
                print(f"{case.name}: skipped, {why}", file=sys.stderr)
            except Exception:
                crashed = True
                print(f"{case.name}: crashed", file=sys.stderr)
                traceback.print_exc()
        context.say("")
    return rows, crashed


@contextmanager
def _room(folder: str | None) -> Iterator[str]:
    """A temporary folder in ``folder``."""
    parent = folder or DEFAULT_FOLDER
    os.makedirs(parent, exist_ok=True)
    try:
        with tempfile.TemporaryDirectory(prefix="run-", dir=parent) as path:
            yield path
    finally:
        if folder is None:
            with suppress(OSError):  # another run may be using it
                os.rmdir(parent)


def print_table(rows: list[Row]) -> None:
    line = "{:<30} {:<13} {:>12} {:>12} {:>8} {:>6} {:>4}"
    print(line.format("case", "unit", "ours", "base", "ratio", "bar", "ok?"))
    for row in rows:
        bar = row["bar"]
        verdict = "" if bar is None else "yes" if row["ratio"] >= bar else "NO"
        figures = (_show(row["ours"]), _show(row["base"]), f"{row['ratio']:.2f}", "" if bar is None else bar)
        print(line.format(row["case"], row["unit"], *figures, verdict), row.get("note", ""))


def print_changes(before: list[Row], after: list[Row]) -> None:
    """Ratio against ratio: both runs were measured against the machine as it was then."""
    old = {row["case"]: row["ratio"] for row in before}
    print(f"{'case':<30} {'before':>8} {'after':>8} {'change':>8}")
    for row in after:
        if row["case"] not in old:
            continue
        change = row["ratio"] / old[row["case"]] - 1 if old[row["case"]] else 0.0
        flag = "" if abs(change) <= NOTABLE else "  better" if change > 0 else "  WORSE"
        print(f"{row['case']:<30} {old[row['case']]:>8.2f} {row['ratio']:>8.2f} {change:>+8.0%}{flag}")


def _show(figure: float) -> str:
    return f"{figure:,.0f}" if figure >= 1000 else f"{figure:.2f}"


def _read(path: str) -> list[Row]:
    with open(path) as file:
        rows: list[Row] = json.load(file)
    return rows


if __name__ == "__main__":
    sys.exit(main())
