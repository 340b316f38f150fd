"""HTTP routes beside the pages. Each answers a query with JSON, computed by the engine in a worker thread:

    /lanes   swimlanes of a workload at one number of slots: lengths (real64, uniform, one_long, own), own (12,40,7),
             arrivals (all, poisson:RATE, bursts:SIZE:GAP), B → {"static": {…}, "continuous": {…}}
    /board   frames of the two-allocator board from `since` on: open, pool, b, seats, watermark, budget, acts
    /chart   the data of a chart by its `name`
    /split   lesson 2's four runs: prompt, limit, pool → the five parts of the pool, step by step
    /account the KV calculator: layers, kv_heads, head_dim, bytes, tokens, requests
    /board/model  the board's actions on the small model: texts, times, and whether the frames are the counted ones

What cannot be computed is answered with status 400 and {"error": {"code": …, "detail": {…}}}. `/plotly.js` is the
library that draws charts, out of the installed package, so that nothing is fetched from elsewhere.
"""

from __future__ import annotations

import gzip
import json
import logging
from collections.abc import Callable, Mapping
from functools import cache
from importlib.resources import files

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from app.board import frames
from app.board_model import BoardModel
from app.calculator import calculate
from app.charts import CHARTS
from app.lanes import Spec, SpecError, packed, parse_slots
from app.live.errors import LiveError
from app.live.models import Models
from app.split import picture

log = logging.getLogger(__name__)

Answer = Callable[[Mapping[str, str]], bytes]


def lanes(params: Mapping[str, str]) -> bytes:
    """Gzipped JSON: the swimlanes of a workload."""
    return packed(Spec.parse(params), parse_slots(params.get("B", "8")))


def board(params: Mapping[str, str]) -> bytes:
    """Gzipped JSON: frames of the board."""
    return _packed(frames(params))


def chart(params: Mapping[str, str]) -> bytes:
    """Gzipped JSON: the rows of a chart."""
    if params.get("name") not in CHARTS:
        raise SpecError("query", name="name")
    return _packed(CHARTS[params["name"]]())


def split(params: Mapping[str, str]) -> bytes:
    """Gzipped JSON: four ways of handing out memory."""
    return _packed(picture(params))


def account(params: Mapping[str, str]) -> bytes:
    """Gzipped JSON: the KV calculator's results."""
    return _packed(calculate(params))


ANSWERS: dict[str, Answer] = {
    "/lanes": lanes,
    "/board": board,
    "/chart": chart,
    "/split": split,
    "/account": account,
}


def answer(params: Mapping[str, str], path: str = "/lanes") -> tuple[int, bytes]:
    """Status and gzipped JSON body for a query."""
    return _answered(ANSWERS[path], params)


def json_route(path: str, made: Answer) -> Route:
    """The route of an answer."""

    async def respond(request: Request) -> Response:
        status, body = await run_in_threadpool(_answered, made, dict(request.query_params))
        return _response(request, status, body, "application/json", kept=path in ANSWERS)

    return Route(path, respond)


def _answered(made: Answer, params: Mapping[str, str]) -> tuple[int, bytes]:
    try:
        return 200, made(params)
    except SpecError as error:
        return 400, _packed({"error": {"code": error.code, "detail": error.detail}})
    except LiveError as error:
        return 503, _packed({"error": {"code": error.code, "detail": error.detail}})
    except Exception:
        log.exception("a query could not be answered: %r", dict(params))
        return 500, _packed({"error": {"code": "broken", "detail": {}}})


async def plotly_route(request: Request) -> Response:
    """Plotly's script."""
    return _response(request, 200, await run_in_threadpool(_plotly), "text/javascript")


def routes(models: Models) -> list[Route]:
    """All of them.

    Args:
        models: those of the app; the board writes with the small one.
    """
    measured = json_route("/board/model", lambda params: _packed(BoardModel(models).frames(params)))
    return [*(json_route(path, made) for path, made in ANSWERS.items()), measured, Route("/plotly.js", plotly_route)]


def _response(request: Request, status: int, body: bytes, media_type: str, kept: bool = True) -> Response:
    cache = "private, max-age=3600" if status == 200 and kept else "no-store"  # what a clock read is not kept
    headers = {"Cache-Control": cache, "Vary": "Accept-Encoding"}
    if "gzip" in request.headers.get("accept-encoding", ""):
        headers["Content-Encoding"] = "gzip"
    else:
        body = gzip.decompress(body)
    return Response(body, status, headers, media_type=media_type)


def _packed(data: object) -> bytes:
    return gzip.compress(json.dumps(data, separators=(",", ":")).encode(), compresslevel=4, mtime=0)


@cache
def _plotly() -> bytes:
    return gzip.compress((files("plotly") / "package_data" / "plotly.min.js").read_bytes(), mtime=0)
