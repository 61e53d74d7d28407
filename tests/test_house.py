"""The house rules, read off the source: who imports whom, what importing does, what is documented and forbidden."""

import ast
import doctest
import importlib
import inspect
import json
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "amsip"

# each room imports from itself and from the lines above it
ROOMS = (
    {"_checks", "_disk"},
    {"_linalg"},
    {"whitening", "bandwidths", "responsibilities"},
    {"kernels"},
    {"derivatives", "subspace"},
    {"references"},
    {"discrepancy", "weights", "finishing", "wild"},
    {"errors"},
    {"rules"},
    {"guard", "seeds", "maps"},
    {"pretrained", "correction", "placement"},
    {"defaults"},
    {"quadrature"},
    {"training"},
    {"files"},
    {"draws", "sources", "runner", "problems", "report"},
    {"bench"},
    {"demo", "paper"},
    {"cli"},
)
PUBLIC_DOORS = {"__init__", "__main__"}
# doors of the package, which import its public names like a user does
USERS = {"cli", "demo", "bench", "paper"}
FILE_LINES, FUNCTION_LINES, ARGUMENTS = 300, 60, 7
# files that hold one list of like things, and may be long
LONG_FILES = {"_checks.py": 700, "kernels.py": 500, "subspace.py": 350}
# constructors whose arguments are settings, and calls whose arguments are the whole problem
MANY_ARGUMENTS = 10
OPTIONAL = ("matplotlib", "zuko", "scipy", "xarray", "pandas", "tensorboard", "sbi", "arviz")


def sources() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def label(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def room(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def rank(name: str) -> int:
    places = [i for i, names in enumerate(ROOMS) if name in names]
    assert places, f"amsip/{name} has no place in ROOMS: give it one, and a line in docs/architecture.md"
    return places[0]


def imported_rooms(path: Path) -> set[str]:
    rooms = set()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.ImportFrom) and node.module == "amsip":
            known = set().union(*ROOMS)
            rooms |= {alias.name if alias.name in known else "__init__" for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("amsip."):
            rooms.add(node.module.split(".")[1])
        elif isinstance(node, ast.Import):
            names = [alias.name.split(".") for alias in node.names]
            rooms |= {parts[1] if len(parts) > 1 else "__init__" for parts in names if parts[0] == "amsip"}
    return rooms


@pytest.mark.parametrize("path", sources(), ids=label)
def test_imports_go_one_way(path):
    here = room(path)
    if here in PUBLIC_DOORS:
        return
    for other in imported_rooms(path):
        if other == "__init__":
            assert here in USERS, f"{label(path)} imports the public package; import the room it needs"
            continue
        assert other == here or rank(other) < rank(here), f"{label(path)} imports {other}, which is not below {here}"


def test_relative_and_star_imports_are_not_used():
    for path in sources():
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{label(path)}:{node.lineno} imports relatively"
                assert all(alias.name != "*" for alias in node.names), f"{label(path)}:{node.lineno} imports a star"
                assert node.module != "__future__", f"{label(path)}: annotations must be live for the shape checker"


def test_private_names_stay_in_their_file():
    for path in sources():
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("amsip."):
                private = [alias.name for alias in node.names if alias.name.startswith("_")]
                assert not private, f"{label(path)}:{node.lineno} imports private {private} from {node.module}"


IMPORTED = """
import json, logging, os, random, sys, warnings
import numpy, torch

def state():
    return [torch.get_default_dtype(), torch.is_grad_enabled(), torch.get_num_threads(), random.getstate(),
            torch.random.get_rng_state().tolist(), str(numpy.random.get_state()), torch.is_inference_mode_enabled(),
            logging.getLogger().level, len(logging.getLogger().handlers), list(warnings.filters), dict(os.environ)]

before = state()
import amsip
changed = [place for place, (old, new) in enumerate(zip(before, state())) if old != new]
optional = [name for name in OPTIONAL if name in sys.modules]
import amsip.cli
amsip.cli.build_parser()
optional_of_cli = [name for name in OPTIONAL if name in sys.modules]

from amsip import quadrature
from amsip.quadrature import as_reference
module = sys.modules["amsip.quadrature"]
same = callable(quadrature) and amsip.quadrature is quadrature is module.quadrature
print(json.dumps({"changed": changed, "optional": optional, "optional_of_cli": optional_of_cli, "same": same}))
"""


@pytest.fixture(scope="module")
def fresh_import() -> dict:
    """What a new interpreter sees before and after `import amsip`; anything else it printed fails the parsing."""
    code = f"OPTIONAL = {OPTIONAL!r}\n{IMPORTED}"
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return json.loads(done.stdout)


def test_import_changes_no_global_state(fresh_import):
    assert fresh_import["changed"] == []


def test_import_is_light(fresh_import):
    assert fresh_import["optional"] == []
    assert fresh_import["optional_of_cli"] == []


def test_quadrature_is_the_function_and_its_module_still_imports(fresh_import):
    assert fresh_import["same"]


def public_names() -> list[str]:
    import amsip

    return list(amsip.__all__)


def test_public_names_are_sorted_and_distinct():
    names = public_names()
    assert names == sorted(set(names))
    assert 20 <= len(names) <= 70


@pytest.mark.parametrize("name", public_names())
def test_every_public_name_has_an_example(name):
    import amsip

    documented = inspect.getdoc(getattr(amsip, name))
    assert documented, f"amsip.{name} has no docstring"
    assert doctest.DocTestParser().get_examples(documented), f"amsip.{name} shows no `>>>` example"


@pytest.mark.parametrize("name", public_names())
def test_public_signatures_take_no_catch_all_keywords(name):
    import amsip

    value = getattr(amsip, name)
    if isinstance(value, type) and issubclass(value, Exception):
        return
    parameters = inspect.signature(value).parameters.values()
    assert all(p.kind is not p.VAR_KEYWORD for p in parameters), f"amsip.{name} swallows misspelt keywords"


def test_every_file_says_what_it_is():
    for path in sources():
        assert ast.get_docstring(tree(path)), f"{label(path)} has no docstring"


@pytest.mark.parametrize("path", sources(), ids=label)
def test_files_and_functions_stay_small(path):
    lines = len(path.read_text(encoding="utf-8").splitlines())
    ceiling = LONG_FILES.get(label(path), FILE_LINES)
    assert lines <= ceiling, f"{label(path)} has {lines} lines, ceiling {ceiling}: it holds two concepts"
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.FunctionDef):
            length = node.end_lineno - node.lineno + 1
            assert length <= FUNCTION_LINES, f"{label(path)}:{node.name} has {length} lines"
            count = len(node.args.args) + len(node.args.kwonlyargs) - (node.args.args[:1] != [])
            assert count <= (MANY_ARGUMENTS if node.name == "__init__" else ARGUMENTS), f"{label(path)}:{node.name}"


EQUATION = re.compile(r"Equations? \((\d+)\)")
PLACE = re.compile(r"(Proposition \d|Algorithm \d|Appendix [A-C](?:\.\d)?) of the paper", re.IGNORECASE)


def test_every_equation_that_is_cited_is_in_the_notation_table():
    notation = (ROOT / "docs" / "notation.md").read_text(encoding="utf-8")
    for path in sources():
        text = path.read_text(encoding="utf-8")
        for tag in EQUATION.findall(text):
            assert f"({tag})" in notation, f"{label(path)} cites equation ({tag}), absent from docs/notation.md"
        for place in PLACE.findall(text):
            assert place.lower() in notation.lower(), (
                f"{label(path)} cites {place}, which docs/notation.md does not list"
            )


def test_the_notation_table_names_files_that_exist():
    notation = (ROOT / "docs" / "notation.md").read_text(encoding="utf-8")
    for name in re.findall(r"`((?:\w+/)*\w+\.py)`", notation):
        assert (PACKAGE / name).exists(), f"docs/notation.md names amsip/{name}, which does not exist"


def test_the_rooms_of_the_architecture_page_are_there_or_said_not_to_be():
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    rooms = re.findall(r"^\| `(\w+)` \| (.*) \|$", page, re.MULTILINE)
    assert rooms
    for name, purpose in rooms:
        there = (PACKAGE / name).is_dir() or (PACKAGE / f"{name}.py").exists()
        assert there != purpose.endswith("(not there yet)"), f"docs/architecture.md is wrong about {name}"


def test_every_equation_of_the_paper_is_in_the_notation_table():
    notation = (ROOT / "docs" / "notation.md").read_text(encoding="utf-8")
    assert [tag for tag in range(1, 16) if f"({tag})" not in notation] == []


def test_the_architecture_page_names_every_room():
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    for name in {room(path) for path in sources()} - PUBLIC_DOORS:
        assert re.search(rf"\b{name}\b", page), f"docs/architecture.md does not say what {name} is for"


FORBIDDEN = {
    "pickle": re.compile(r"^\s*(import|from) (pickle|dill|cloudpickle|joblib|shelve|marshal)\b", re.MULTILINE),
    "torch.load": re.compile(r"\btorch\.(load|save|jit\.load|export\.load)\("),
    "eval": re.compile(r"(?<![\w.])(eval|exec)\("),
    "yaml": re.compile(r"\byaml\.(load|unsafe_load)\("),
    "allow_pickle": re.compile(r"allow_pickle\s*=\s*True"),
    "shell": re.compile(r"shell\s*=\s*True|os\.system\("),
    "rootless path": re.compile(r"[\"'`(\s](/work|/root|/home|/tmp|/opt|/Users)/"),
}


@pytest.mark.parametrize("what", FORBIDDEN)
def test_forbidden_calls_are_absent(what):
    for path in sources():
        text = path.read_text(encoding="utf-8")
        found = FORBIDDEN[what].search(text)
        assert not found, f"{label(path)}: {what}: {found.group(0)!r}"


def test_the_global_seed_is_only_set_where_it_is_restored():
    pattern = re.compile(r"\b(torch\.manual_seed|np\.random\.seed|random\.seed|torch\.set_default_dtype)\(")
    for path in sources():
        text = path.read_text(encoding="utf-8")
        assert not pattern.search(text) or "fork_rng" in text, f"{label(path)} sets global state"


def test_only_the_command_line_prints():
    for path in sources():
        if room(path) == "cli":
            continue
        calls = [n for n in ast.walk(tree(path)) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)]
        printing = [n.lineno for n in calls if n.func.id == "print"]
        assert not printing, f"{label(path)} prints at lines {printing}"


def tracked_files() -> list[Path]:
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    names = done.stdout.split("\0") if done.returncode == 0 else []
    return [ROOT / name for name in names if name and (ROOT / name).is_file()]


def test_no_tracked_text_names_a_machine():
    pattern = re.compile(r"(?<![\w.])/(work|root|home|Users|opt)/\w+|extra-index-url|index-url")
    for path in tracked_files():
        if path.suffix in {".py", ".md", ".toml", ".json", ".txt", ".cfg", ".yml", ".yaml", ""} and path != Path(
            __file__
        ):
            found = pattern.search(path.read_text(encoding="utf-8", errors="replace"))
            assert not found, f"{path.relative_to(ROOT)}: {found.group(0)!r}"


def test_every_module_can_be_imported_alone():
    for path in sources():
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        if not name.endswith("__main__"):
            importlib.import_module(name)
