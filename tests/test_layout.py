"""The shape of the project: who may import whom, what a start must not load, and the habits every file keeps."""

import ast
import re
import subprocess
import sys
import tomllib
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("app", "lessons", "engine", "kernels")
HEAVY = {"torch", "transformers", "triton"}
MAY_IMPORT = {"app": {"lessons", "engine"}, "lessons": set(), "engine": set(), "kernels": set()}
EXCEPTIONS = {"engine/model": {"kernels"}, "lessons/labs": {"engine"}}
"""Folders (or files of that name) that may import more than their package."""

FILES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
IDS = [path.relative_to(ROOT).as_posix() for path in FILES]


def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(nodes) -> set[str]:
    """Modules named by import statements; for `from a import b` both `a` and `a.b`."""
    found = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative import: write the package's name"
            found |= {str(node.module)} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


@pytest.mark.parametrize("path", FILES, ids=IDS)
def test_layers(path):
    name = path.relative_to(ROOT).as_posix()
    package = name.split("/")[0]
    allowed = {package} | MAY_IMPORT[package]
    for start, more in EXCEPTIONS.items():
        allowed |= more if name.startswith(start) else set()
    roots = {module.split(".")[0] for module in imports(ast.walk(tree(path)))}
    assert not (roots & set(PACKAGES)) - allowed
    if package in ("engine", "lessons"):
        assert not roots & {"streamlit", "plotly"}, "pages belong into app/"
    if not (name.startswith("engine/model") or package == "kernels"):
        assert not roots & HEAVY, "only engine/model and kernels/ may load torch"


@pytest.mark.parametrize("package", PACKAGES)
def test_no_circles(package):
    """Imports at the top of the modules of a package form no circle."""
    graph = {module_of(path): tree(path) for path in FILES if module_of(path).split(".")[0] == package}
    edges = {name: (imports(body.body) & set(graph)) - {name, package} for name, body in graph.items()}
    try:
        TopologicalSorter(edges).prepare()
    except CycleError as error:
        pytest.fail(f"modules import each other: {' → '.join(error.args[1])}")


@pytest.mark.parametrize("module", ["engine", "engine.cli", "engine.anchor", "lessons"])
def test_start_loads_nothing_heavy(module):
    code = f"import sys, {module}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert not {name.split(".")[0] for name in done.stdout.split()} & (HEAVY | {"numpy", "streamlit", "plotly"})


@pytest.mark.parametrize("path", FILES, ids=IDS)
def test_habits(path):
    """A paragraph at the head of each module; errors are exceptions with a reason, never `assert`."""
    module = tree(path)
    assert not module.body or ast.get_docstring(module), "no paragraph at the head of the module"
    if path.relative_to(ROOT).parts[0] == "engine":
        assert not [node.lineno for node in ast.walk(module) if isinstance(node, ast.Assert)]


def streamlit_settings() -> dict:
    return tomllib.loads((ROOT / ".streamlit" / "config.toml").read_text(encoding="utf-8"))


def test_streamlit_knows_every_setting():
    from streamlit import config

    known = config.get_config_options()

    def names(table, prefix=""):
        for key, value in table.items():
            yield from names(value, f"{prefix}{key}.") if isinstance(value, dict) else [prefix + key]

    assert not [name for name in names(streamlit_settings()) if name not in known]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_theme_is_the_tokens(theme):
    """Streamlit's own theme and the components' tokens are the same colours."""
    css = (ROOT / "app" / "components" / "tokens.css").read_text(encoding="utf-8")
    blocks = re.findall(r"\.course(\[data-theme=dark\])?\s*\{([^}]*)\}", css)
    tokens = dict(
        re.findall(r"--([\w-]+):\s*(#\w+)", next(body for dark, body in blocks if bool(dark) == (theme == "dark")))
    )
    colours = streamlit_settings()["theme"][theme]
    pairs = {"backgroundColor": "paper", "secondaryBackgroundColor": "panel", "textColor": "ink", "borderColor": "line"}
    assert {key: colours[key] for key in pairs} == {key: tokens[token] for key, token in pairs.items()}
    assert colours["chartCategoricalColors"] == [tokens[f"h{n}"] for n in range(1, 13)]
