"""Pages of the pipeline: its runs, live, one run, and the page that a run made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from lamina import runs
from lamina.server.http import asking
from lamina.server.http.access import Visit
from lamina.server.http.console.page import Page
from lamina.server.http.operations import Place
from lamina.server.http.ops import pipeline
from lamina.server.http.serving import Serving

_KINDS: Final = ("asof", "audit", "backup", "clean", "compact", "dump", "export", "report")
_TRY: Final = (
    ("lamina pipeline report --data {data} --to report.html", "a page with plots of what there was"),
    ("lamina pipeline audit --data {data}", "prove that the history holds together"),
    ("lamina pipeline export --data {data} --to exported", "what is new, as Parquet by day"),
    ("lamina pipeline asof --data {data} --time -1h --view job_state --to jobs.parquet", "the jobs an hour ago"),
    ("lamina backup {data} --to backup", "a generation of a backup"),
)
"""Commands that work beside a server."""
_DOWNLOAD: Final = {
    # The page has scripts and styles of its own. It is saved, never shown from here: it could act as who looks at it.
    "content-security-policy": "sandbox; default-src 'none'",
    "content-type": "text/html; charset=utf-8",
}


async def _runs(place: Place, asked: pipeline.RunsAsks) -> Mapping[str, object]:
    found = await pipeline.RUNS.do(place, asked)
    is_first = not (asked.after or asked.kind or asked.state)
    data = place.inside.data or "DATA"
    return {
        "found": found,
        "running": [one for one in found.runs if one.state == runs.RUNNING],
        "last_page": next((one for one in found.runs if one.has_page), None) if is_first else None,
        "kinds": _KINDS,
        "states": (runs.RUNNING, runs.DONE, runs.FAILED, runs.LOST),
        "commands": [(command.format(data=data), what) for command, what in _TRY],
    }


async def _run(place: Place, asked: pipeline.RunAsks) -> Mapping[str, object]:
    return {"run": await pipeline.RUN.do(place, asked)}


def routes(serving: Serving) -> list[BaseRoute]:
    """``/pipeline/page?id=``: the page that a run made, to be saved."""

    async def page(request: Request) -> Response:
        visit: Visit = request.scope["visit"]
        place = serving.place(visit)
        found = await pipeline.PAGE.do(place, asking.read(pipeline.RunAsks, asking.query(request)))
        name = {"content-disposition": f'attachment; filename="{found.name}"'}
        return Response(found.html.encode(), headers={**_DOWNLOAD, **name})

    return [Route("/pipeline/page", page, methods=["GET"])]


PAGES: Final[tuple[Page, ...]] = (
    Page(
        path="/pipeline",
        section="pipeline",
        template="pipeline/runs.html",
        asks=pipeline.RunsAsks,
        shows=_runs,
        right=("admin", "read"),
    ),
    Page(
        path="/pipeline/run",
        section="pipeline",
        template="pipeline/run.html",
        asks=pipeline.RunAsks,
        shows=_run,
        right=("admin", "read"),
    ),
)
