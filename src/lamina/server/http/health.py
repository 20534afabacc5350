"""Is it alive, is it ready? Answers for whoever starts, stops and balances processes.

/healthz   200 while this process is of use, with how far it is; 503, with the reason, when only a new start helps
/readyz    200 when clients are served; 503, with phase, percent and seconds left, while it restores or stops,
           and while something is broken that may end by itself (a full disk)

Data that is not as it was written does not keep anybody from being served: ``status`` is then ``damaged``, and /readyz
says under ``damage`` what was found and where.

Nobody has to log in for them. Where others have to, reasons name no topic and no file, but for who may read all of the
server.
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from lamina._version import VERSION
from lamina.server.http.access import Visit
from lamina.server.life import Life

_OK, _NOT_NOW = 200, 503


def routes(life: Life) -> list[Route]:
    """The two routes, about this life."""

    async def healthz(request: Request) -> Response:
        reason = life.why_restart(with_names=_knows_names(request))
        if reason:
            return JSONResponse({"status": "failed", "phase": life.phase, "reason": reason}, _NOT_NOW)
        far = {"phase": life.phase, "percent": life.percent, "estimate_s": life.estimate_s}
        return JSONResponse({"status": "damaged" if life.damage else "ok", **far, "version": VERSION}, _OK)

    async def readyz(request: Request) -> Response:
        # Reports name files: they are for the operator.
        shown = life.as_dict(with_reports=False, with_names=_knows_names(request))
        is_ready = shown["phase"] == "ready" and not shown["problems"]
        headers = {} if is_ready else {"retry-after": "1"}
        return JSONResponse({"is_ready": is_ready, **shown}, _OK if is_ready else _NOT_NOW, headers)

    return [Route("/healthz", healthz, methods=["GET"]), Route("/readyz", readyz, methods=["GET"])]


def _knows_names(request: Request) -> bool:
    visit: Visit | None = request.scope["visit"]
    return visit is not None and visit.user.may("admin", "read", "")
