"""HTTP routes beside the pages: `/lanes` gives the swimlanes of a workload for some numbers of slots, as JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from app import lanes
from engine.errors import ValidationError

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response


def answer(params: dict[str, str]) -> tuple[int, bytes]:
    """Status and JSON body for a query: `{"lanes": {B: {policy: …}}}`, or `{"error": message}` with status 400."""
    try:
        asked = params.get("B", "")
        wanted = asked.split(",")
        if len(wanted) > len(lanes.SLOTS) or not all(word.isascii() and word.isdigit() for word in wanted):
            raise ValidationError("B must be numbers of slots, such as 8 or 8,16")
        spec = lanes.LaneSpec(
            params.get("lengths", "real64"), params.get("own", "")[:8000], params.get("arrivals", "all")
        )
        if spec.lengths != "own":
            spec = lanes.LaneSpec(spec.lengths, "", spec.arrivals)
        body = {"lanes": {word: lanes.lanes_for(spec, int(word)) for word in wanted}}
        return 200, json.dumps(body, separators=(",", ":")).encode()
    except lanes.OwnListError as problem:
        return 400, json.dumps({"error": str(problem), "key": problem.key, "values": problem.values}).encode()
    except ValidationError as error:
        return 400, json.dumps({"error": str(error)}, ensure_ascii=False).encode()


async def lanes_route(request: Request) -> Response:
    """The route; the engine runs in a worker thread."""
    from starlette.concurrency import run_in_threadpool
    from starlette.responses import Response

    status, body = await run_in_threadpool(answer, dict(request.query_params))
    return Response(body, status_code=status, media_type="application/json")
