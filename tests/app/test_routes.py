"""The routes beside the pages, over HTTP: JSON, compressed or not, errors with a reason, what may be kept."""

from __future__ import annotations

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from app.charts import BLOCK_SIZES, SHARED, block_sizes
from app.routes import ANSWERS, routes
from tests.app.live_models import fake_models, ready


@pytest.fixture(scope="module")
def client():
    with TestClient(Starlette(routes=routes(fake_models()))) as made:
        yield made


QUERIES = {
    "/lanes": "?B=4",
    "/board": "?acts=s2",
    "/chart": "?name=block_sizes",
    "/split": "?pool=8192",
    "/account": "?layers=1&kv_heads=1&head_dim=1&bytes=1&tokens=1&requests=1",
}


@pytest.mark.parametrize("path", ANSWERS)
def test_every_answer_comes_compressed_or_plain(client, path):
    packed = client.get(path + QUERIES[path])
    plain = client.get(path + QUERIES[path], headers={"accept-encoding": "identity"})
    assert packed.status_code == plain.status_code == 200
    assert packed.headers["content-encoding"] == "gzip"
    assert "content-encoding" not in plain.headers
    assert packed.json() == plain.json()
    assert "max-age" in packed.headers["cache-control"]


@pytest.mark.parametrize("path", ["/lanes?B=x", "/board?acts=x", "/chart?name=x", "/split?pool=x", "/account"])
def test_what_cannot_be_computed_has_a_reason(client, path):
    answer = client.get(path)
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] in ("query", "account_field")
    assert answer.headers["cache-control"] == "no-store"


def test_the_model_is_asked_anew_every_time_and_says_when_it_is_not_ready(client):
    assert client.get("/board/model?acts=s").json()["error"]["code"] == "live_loading"
    with TestClient(Starlette(routes=routes(ready(fake_models())))) as other:
        answer = other.get("/board/model?acts=s")
    assert answer.json()["same"] is True
    assert answer.headers["cache-control"] == "no-store"


def test_plotly_comes_from_here(client):
    script = client.get("/plotly.js")
    assert script.headers["content-type"].startswith("text/javascript")
    assert "plotly.js v" in script.text[:300]


def test_the_chart_of_block_sizes(client):
    made = block_sizes()
    assert client.get("/chart?name=block_sizes").json() == made
    rows = {row["b"]: row for row in made["rows"]}
    assert tuple(rows) == BLOCK_SIZES
    assert rows[1]["waste"] == 0
    for size, row in rows.items():
        assert row["waste"] <= size - 1
        assert row["table"] == -(-made["longest"] // size)
        assert row["lost"] == SHARED % size
    waste = [rows[size]["waste"] for size in BLOCK_SIZES]
    assert waste == sorted(waste)
