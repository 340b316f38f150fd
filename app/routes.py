"""HTTP routes beside the pages: `/lanes` gives the swimlanes of a workload at one number of slots, as JSON.

Asked with `lengths` (real64, uniform, one_long, own), `own` (12,40,7), `arrivals` (all, poisson:RATE, bursts:SIZE:GAP),
and `B`, it answers {"static": {…}, "continuous": {…}}, or, with status 400, {"error": {"code": …, "detail": {…}}}.
"""

from __future__ import annotations

import gzip
import json
import logging
from collections.abc import Mapping

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from app.lanes import Spec, SpecError, packed, parse_slots

log = logging.getLogger(__name__)


def answer(params: Mapping[str, str]) -> tuple[int, bytes]:
    """Status and gzipped JSON body for a query."""
    try:
        return 200, packed(Spec.parse(params), parse_slots(params.get("B", "8")))
    except SpecError as error:
        return 400, _error(error.code, **error.detail)
    except Exception:
        log.exception("lanes could not be computed")
        return 500, _error("broken")


def _error(code: str, **detail: object) -> bytes:
    return gzip.compress(json.dumps({"error": {"code": code, "detail": detail}}).encode())


async def lanes_route(request: Request) -> Response:
    """The route; the engine runs in a worker thread."""
    status, body = await run_in_threadpool(answer, dict(request.query_params))
    headers = {"Cache-Control": "private, max-age=3600" if status == 200 else "no-store", "Vary": "Accept-Encoding"}
    if "gzip" in request.headers.get("accept-encoding", ""):
        headers["Content-Encoding"] = "gzip"
    else:
        body = gzip.decompress(body)
    return Response(body, status, headers, media_type="application/json")
