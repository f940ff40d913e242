"""The shape of the repository: who imports whom, what may be imported where, one home for each stage."""

import ast
import importlib
import importlib.metadata
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "falloff"

# A module imports only from stages before its own, and from its own.
STAGES = (
    "units",
    "student",
    "normal",
    "outputs",
    "script",
    "host",
    "provenance",
    "spec",
    "records",
    "rawlog",
    "slurm",
    "ownership",
    "outcome",
    "other_load",
    "growing_log",
    "launch",
    "schedule",
    "batch",
    "bench",
    "ingest",
    "perfmodel",
    "analysis",
    "preflight",
    "cost",
    "report",
    "archive",
    "doctor",
    "submission",
    "unlaunched",
    "head",
    "site_check",
    "cli",
)
# A GPU node has little beside torch, so what runs there needs no more than this.
NODE_STAGES = (
    "units",
    "student",
    "outputs",
    "script",
    "host",
    "provenance",
    "spec",
    "rawlog",
    "slurm",
    "ownership",
    "outcome",
    "other_load",
    "growing_log",
    "launch",
    "schedule",
    "batch",
    "bench",
)
NODE_PACKAGES = {"yaml", "numpy", "pynvml"}
# What several modules do together has a test of its own.
TESTS_OF_SEVERAL = {
    "tests/bench/test_layouts.py",
    "tests/bench/test_outcomes.py",
    "tests/ingest/test_fuzz.py",
    "tests/report/test_page_in_browser.py",
    # on a real Slurm
    "tests/slurm/test_cluster.py",
    "tests/slurm/test_faults.py",
    "tests/slurm/test_gentle.py",
    "tests/slurm/test_launch_errors.py",
    "tests/slurm/test_smoke.py",
}
NAMELESS = {"utils", "util", "helpers", "helper", "common", "misc", "tools", "base", "core"}

MODULES = sorted(SOURCE.rglob("*.py"))
SCRIPTS = sorted((ROOT / "workflow_scripts").glob("*.py"))
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def stage_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imports_of(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "imports are absolute"
            assert node.module
            # `from falloff import units` imports the stage units
            yield from ([f"falloff.{a.name}" for a in node.names] if node.module == "falloff" else [node.module])


def module_imports(path: Path) -> list[str]:
    return list(imports_of(ast.parse(path.read_text(), str(path))))


def names_in(rules: str, name: str) -> set[str]:
    """Return the words in quotes of a list in rules/<rules>.smk."""
    text = (ROOT / "rules" / f"{rules}.smk").read_text()
    return set(re.findall(r'"(\w+)"', text.split(f"{name} = [")[1].split("\n]")[0]))


def notebook_code(path: Path) -> str:
    cells = json.loads(path.read_text())["cells"]
    return "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")


def test_what_the_page_on_python_names_is_there() -> None:
    names = re.findall(r"`(falloff\.[\w.]+)`", (ROOT / "docs" / "python.md").read_text())
    assert names
    for name in names:
        module, _, attribute = name.rpartition(".")
        assert hasattr(importlib.import_module(module), attribute), name


def test_every_module_belongs_to_a_stage() -> None:
    assert {stage_of(path) for path in MODULES} - {"__init__"} <= set(STAGES)


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_a_module_imports_only_from_stages_before_its_own(path: Path) -> None:
    if path.name == "__init__.py":
        return
    allowed = STAGES[: STAGES.index(stage_of(path)) + 1]
    for name in module_imports(path):
        first, _, rest = name.partition(".")
        if first == "falloff":
            assert rest.split(".")[0] in allowed, f"{name_of(path)} imports {name}"


def test_no_two_modules_import_each_other() -> None:
    graph = {
        ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts): set(module_imports(path)) for path in MODULES
    }
    for path in MODULES:
        module = ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts)
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                graph[module] |= {f"{node.module}.{alias.name}" for alias in node.names}
    done: set[str] = set()

    def visit(module: str, above: tuple[str, ...]) -> None:
        assert module not in above, " -> ".join([*above, module])
        if module in done or module not in graph:
            return
        for imported in sorted(graph[module] & graph.keys()):
            visit(imported, (*above, module))
        done.add(module)

    for module in graph:
        visit(module, ())


@pytest.mark.parametrize("path", [p for p in MODULES if stage_of(p) in NODE_STAGES], ids=name_of)
def test_what_runs_on_a_node_needs_little_more_than_torch(path: Path) -> None:
    # triton comes with torch wherever torch has CUDA; torchao is asked for by cells in float8 alone
    allowed = NODE_PACKAGES | ({"torch", "triton", "torchao"} if stage_of(path) == "bench" else set())
    for name in module_imports(path):
        first = name.partition(".")[0]
        assert first in allowed | {"falloff"} or first in sys.stdlib_module_names, f"{name_of(path)} imports {name}"
        assert not name.startswith("falloff.records"), f"{name_of(path)} imports records, which needs pandas"


def test_torch_is_imported_in_bench_alone() -> None:
    for path in [*MODULES, *SCRIPTS]:
        if "torch" in {name.partition(".")[0] for name in module_imports(path)}:
            assert path.is_relative_to(SOURCE / "bench"), name_of(path)


def test_matplotlib_is_imported_in_report_and_notebooks_alone() -> None:
    for path in [*MODULES, *SCRIPTS]:
        if "matplotlib" in {name.partition(".")[0] for name in module_imports(path)}:
            assert path.is_relative_to(SOURCE / "report"), name_of(path)


def test_bench_can_be_imported_where_there_is_neither_pandas_nor_pyarrow() -> None:
    modules = [f"falloff.bench.{path.stem}" for path in sorted((SOURCE / "bench").glob("*.py"))]
    modules += ["falloff.batch", "falloff.cli.main", "falloff.cli.measure"]
    code = (
        "import sys, importlib\n"
        "for name in ('pandas', 'pyarrow', 'matplotlib', 'snakemake', 'papermill'): sys.modules[name] = None\n"
        f"for name in {modules!r}: importlib.import_module(name)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("__init__.py")), ids=name_of)
def test_an_init_holds_a_docstring_and_nothing_else(path: Path) -> None:
    body = ast.parse(path.read_text()).body
    assert len(body) == 1
    assert isinstance(body[0], ast.Expr)
    assert isinstance(body[0].value, ast.Constant)


def test_no_module_is_a_drawer_for_the_rest() -> None:
    for path in [*MODULES, *SCRIPTS, *(ROOT / "tests").rglob("*.py")]:
        assert path.stem not in NAMELESS, name_of(path)
        assert not (NAMELESS & set(path.relative_to(ROOT).parts)), name_of(path)


@pytest.mark.parametrize("path", SCRIPTS, ids=name_of)
def test_a_script_is_thin(path: Path) -> None:
    tree = ast.parse(path.read_text())
    functions = [node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    assert "main" in functions
    assert len(functions) <= 2, f"{functions}: what thinks belongs to src/falloff"
    assert len(path.read_text().splitlines()) <= 80
    assert not any(isinstance(node, ast.ClassDef) for node in ast.walk(tree))


def test_every_script_is_run_by_a_rule_or_by_make_and_every_one_that_is_run_exists() -> None:
    wiring = "".join(path.read_text() for path in [*ROOT.glob("rules/*.smk"), ROOT / "Snakefile", ROOT / "Makefile"])
    run = set(re.findall(r"python workflow_scripts/(\w+\.py)", wiring))
    for name in ("HELD_OUT", "PREDICTED", "MODELLED"):
        run |= {f"tabulate_{figure}.py" for figure in names_in("common", name)}
    assert run == {path.name for path in SCRIPTS}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name_of)
def test_a_notebook_draws_and_does_not_think(path: Path) -> None:
    tree = ast.parse(notebook_code(path))
    assert not [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.ClassDef)]
    assert len(json.loads(path.read_text())["cells"]) <= 6


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name_of)
def test_a_notebook_is_stored_without_outputs_and_states_its_parameters(path: Path) -> None:
    notebook = json.loads(path.read_text())
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert not [cell for cell in code if cell["outputs"] or cell["execution_count"] is not None]
    parameters = [cell for cell in code if "parameters" in cell["metadata"].get("tags", [])]
    assert len(parameters) == 1
    for name in ("table", "coverage", "out"):
        assert re.search(rf"^{name} = ", "".join(parameters[0]["source"]), re.MULTILINE)
    assert notebook["metadata"]["kernelspec"]["name"] == "python3"


def test_every_figure_has_its_notebook_and_its_script() -> None:
    named = (names_in("figures", "FIGURES") | names_in("common", "MODELLED")) - {"laptop"}
    assert named == {path.stem for path in NOTEBOOKS}
    assert named == {path.stem.removeprefix("tabulate_") for path in SCRIPTS if path.stem.startswith("tabulate_")}


def test_tests_stand_where_the_module_they_test_stands() -> None:
    for package in [path.parent for path in SOURCE.glob("*/__init__.py")]:
        for path in (ROOT / "tests" / package.name).glob("test_*.py"):
            tested = package / path.name.removeprefix("test_")
            assert tested.is_file() or name_of(path) in TESTS_OF_SEVERAL, f"{name_of(path)} tests no module"


@pytest.mark.parametrize("package", sorted(p.parent for p in SOURCE.glob("*/__init__.py")), ids=name_of)
def test_every_stage_has_a_folder_of_tests(package: Path) -> None:
    if [path for path in package.glob("*.py") if path.name != "__init__.py"]:
        assert list((ROOT / "tests" / package.name).glob("test_*.py"))


@pytest.mark.parametrize("patch", sorted((ROOT / "tests" / "mutations").glob("*.patch")), ids=name_of)
def test_a_mutation_applies_to_the_tree_as_it_is(patch: Path) -> None:
    # what they show takes hours (make mutants); that one has gone stale is seen at once
    done = subprocess.run(["git", "apply", "--check", patch], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_only_rules_read_the_configuration_of_the_workflow() -> None:
    for path in [*MODULES, *SCRIPTS]:
        assert "config[" not in path.read_text(), name_of(path)


# One environment, stated in four places.


def direct_dependencies() -> dict[str, Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    stated = [*project["dependencies"], *project["optional-dependencies"]["dev"]]
    return {canonicalize_name(r.name): r for r in map(Requirement, stated)}


def pins_of(lines: list[str]) -> dict[str, str]:
    """Return name and version of each pin that applies to this Python and platform."""
    pins: dict[str, str] = {}
    for line in lines:
        requirement = Requirement(line)
        if requirement.marker is None or requirement.marker.evaluate():
            (specifier,) = requirement.specifier
            assert specifier.operator == "==", line
            pins[canonicalize_name(requirement.name)] = specifier.version
    return pins


def constraints() -> dict[str, str]:
    return pins_of((ROOT / "constraints.txt").read_text().splitlines())


def environment() -> dict[str, object]:
    loaded: dict[str, object] = yaml.safe_load((ROOT / "environment.yml").read_text())
    return loaded


def environment_pip_lines() -> list[str]:
    dependencies = environment()["dependencies"]
    assert isinstance(dependencies, list)
    (pip,) = [entry["pip"] for entry in dependencies if isinstance(entry, dict)]
    return list(pip)


def test_the_environment_file_is_one_that_conda_takes() -> None:
    dependencies = environment()["dependencies"]
    assert isinstance(dependencies, list)
    assert environment()["name"] == "falloff"
    assert environment()["channels"] == ["conda-forge"]
    assert [entry for entry in dependencies if isinstance(entry, str) and re.match(r"python=3\.1\d", entry)]
    assert "pip" in dependencies
    assert environment_pip_lines()[0] == "-c constraints.txt"
    assert environment_pip_lines()[1] in ("-e .", "-e .[dev]")


@pytest.mark.parametrize("name", sorted(direct_dependencies()))
def test_a_direct_dependency_has_one_version_wherever_it_is_stated(name: str) -> None:
    pinned = constraints()[name]
    in_environment = pins_of([line for line in environment_pip_lines() if not line.startswith("-")])
    assert in_environment[name] == pinned
    assert direct_dependencies()[name].specifier.contains(pinned)
    # a CPU build of torch calls itself 2.13.0+cpu
    assert importlib.metadata.version(name).partition("+")[0] == pinned


def test_the_environment_file_pins_nothing_that_is_no_direct_dependency() -> None:
    in_environment = pins_of([line for line in environment_pip_lines() if not line.startswith("-")])
    assert in_environment.keys() == direct_dependencies().keys()
