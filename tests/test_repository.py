"""Files at the root of the repository: documented layout, licence, pinned versions and YAML."""

import hashlib
import re
import tomllib
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from yamllint import linter
from yamllint.config import YamlLintConfig

ROOT = Path(__file__).parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
# Requirements of torch's CUDA build, which pins them itself.
PINNED_BY_TORCH = re.compile(r"nvidia-|cuda-|triton$")


def documented_paths() -> dict[str, bool]:
    """Paths in the layout of docs/architecture.md, and whether each is shown with its content."""
    page = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    (block,) = (part for part in page.split("```") if part.startswith("text\nattnlight/\n"))
    paths: dict[str, bool] = {}
    folders: list[str] = []
    for line in block.splitlines()[2:]:
        branch = re.match(r"([│├└─ ]*)(\S+)", line)
        assert branch is not None
        depth = len(branch[1]) // 4 - 1
        folders = [*folders[:depth], branch[2]]
        parent = "".join(folders[:-1])
        if parent:
            paths[parent] = True
        paths["".join(folders)] = False
    return paths


LINES = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
PACKAGES = [line for line in LINES if not line.startswith("#")]
# The versions by canonical name.
PINS = {canonicalize_name(name): version for name, version in (p.split("==") for p in PACKAGES)}


def transitive_requirements() -> set[str]:
    """Names of all packages that attnlight and its extras require, as installed here."""
    project = PYPROJECT["project"]
    pending = list(project["dependencies"])
    for extra in project["optional-dependencies"].values():
        pending += extra
    found: dict[str, str] = {}  # names by requirement
    while pending:
        requirement = Requirement(text := pending.pop())
        name = canonicalize_name(requirement.name)
        if text not in found and not PINNED_BY_TORCH.match(name):
            found[text] = name
            pending += requirements_of(requirement)
    return set(found.values())


def requirements_of(requirement: Requirement) -> Iterator[str]:
    """The requirements of an installed package, with those of the given extras."""
    for text in distribution(requirement.name).requires or ():
        marker = Requirement(text).marker
        environments = [{"extra": extra} for extra in requirement.extras | {""}]
        if marker is None or any(marker.evaluate(environment) for environment in environments):
            yield text


class TestLayout:
    def test_every_documented_path_exists(self) -> None:
        assert [path for path in documented_paths() if not (ROOT / path).exists()] == []

    def test_every_module_is_documented(self) -> None:
        shown = documented_paths()
        modules = {str(path.relative_to(ROOT)) for path in (ROOT / "attnlight").rglob("*.py")}
        closed = tuple(path for path, opened in shown.items() if path.endswith("/") and not opened)
        hidden = {path for path in modules if path.startswith(closed)}
        undocumented = sorted(modules - hidden - shown.keys())
        assert [path for path in undocumented if not path.endswith("__init__.py")] == []

    def test_every_folder_of_tests_mirrors_one_of_the_package(self) -> None:
        folders = {path.name for path in (ROOT / "tests").iterdir() if path.is_dir()}
        packages = {path.name for path in (ROOT / "attnlight").iterdir() if path.is_dir()}
        assert folders <= packages | {"benchmarks", "guard", "__pycache__"}


def test_the_licence_is_apache_2_word_for_word_and_is_declared() -> None:
    licence = (ROOT / "LICENSE").read_text(encoding="utf-8")
    authors = PYPROJECT["project"]["authors"][0]["name"]
    plain = licence.replace(f"2026 {authors}", "[yyyy] [name of copyright owner]")
    digest = hashlib.sha256(plain.encode()).hexdigest()
    # of https://www.apache.org/licenses/LICENSE-2.0.txt
    assert digest == "cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30"
    assert PYPROJECT["project"]["license"] == "Apache-2.0"


class TestConstraints:
    def test_are_exact_and_sorted(self) -> None:
        assert all(re.fullmatch(r"[\w.-]+==[\w.]+", line) for line in PACKAGES)
        assert len(PACKAGES) == len(PINS)
        assert list(PINS) == sorted(PINS)

    def test_pin_exactly_the_transitive_requirements(self) -> None:
        assert transitive_requirements() == set(PINS)

    def test_meet_the_requirements(self) -> None:
        project = PYPROJECT["project"]
        for text in (*project["dependencies"], *project["optional-dependencies"]["dev"]):
            requirement = Requirement(text)
            assert requirement.specifier.contains(PINS[canonicalize_name(requirement.name)])


def test_every_yaml_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)  # where the configuration finds .gitignore
    config = YamlLintConfig(file=".yamllint")
    files = [*(ROOT / "configs").rglob("*.yaml"), ROOT / ".pre-commit-config.yaml"]
    assert len(files) > 10
    for path in files:
        problems = linter.run(path.read_text(encoding="utf-8"), config, str(path))
        assert not list(problems), path
