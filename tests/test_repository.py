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


def pins() -> dict[str, str]:
    """The versions in constraints.txt by canonical name."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pairs = (line.split("==") for line in lines if not line.startswith("#"))
    return {canonicalize_name(name): version for name, version in pairs}


def transitive_requirements() -> set[str]:
    """Names of all packages that attnlight and its extras require, as installed here."""
    project = PYPROJECT["project"]
    pending = list(project["dependencies"])
    for extra in project["optional-dependencies"].values():
        pending += extra
    seen: set[str] = set()
    found: set[str] = set()
    while pending:
        text = pending.pop()
        requirement = Requirement(text)
        name = canonicalize_name(requirement.name)
        if text in seen or PINNED_BY_TORCH.match(name):
            continue
        seen.add(text)
        found.add(name)
        pending += requirements_of(requirement)
    return found


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


class TestLicence:
    def test_is_apache_2_word_for_word(self) -> None:
        digest = hashlib.sha256((ROOT / "LICENSE").read_bytes()).hexdigest()
        # of https://www.apache.org/licenses/LICENSE-2.0.txt
        assert digest == "cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30"

    def test_is_the_one_that_the_package_declares(self) -> None:
        assert PYPROJECT["project"]["license"] == "Apache-2.0"


class TestConstraints:
    def test_are_exact_and_sorted(self) -> None:
        lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
        packages = [line for line in lines if not line.startswith("#")]
        assert all(re.fullmatch(r"[\w.-]+==[\w.]+", line) for line in packages)
        assert len(packages) == len(pins())
        assert packages == sorted(packages, key=lambda line: canonicalize_name(line.split("==")[0]))

    def test_pin_exactly_the_transitive_requirements(self) -> None:
        assert transitive_requirements() == set(pins())

    def test_meet_the_requirements(self) -> None:
        project = PYPROJECT["project"]
        for text in (*project["dependencies"], *project["optional-dependencies"]["dev"]):
            requirement = Requirement(text)
            assert requirement.specifier.contains(pins()[canonicalize_name(requirement.name)])


class TestYaml:
    @pytest.fixture
    def config(self, monkeypatch: pytest.MonkeyPatch) -> YamlLintConfig:
        monkeypatch.chdir(ROOT)  # where the configuration finds .gitignore
        return YamlLintConfig(file=".yamllint")

    def test_every_file_passes(self, config: YamlLintConfig) -> None:
        files = [*(ROOT / "configs").rglob("*.yaml"), ROOT / ".pre-commit-config.yaml"]
        assert len(files) > 10
        problems = [
            f"{path.relative_to(ROOT)}:{problem}"
            for path in files
            for problem in linter.run(path.read_text(encoding="utf-8"), config, str(path))
        ]
        assert not problems
