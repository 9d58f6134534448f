"""What others install: the wheel holds `mha_jax` alone, and that needs nothing but what it declares."""

import os
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.mha_jax.test_readme_example import kernel_blocks

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
WITHOUT = """
import sys
class Without:
    def __init__(self, finder):
        self.finder = finder
    def __getattr__(self, name):
        return getattr(self.finder, name)
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in {blocked!r}:
            return self.finder.find_spec(name, path, target)
sys.meta_path[:] = map(Without, sys.meta_path)
sys.path.insert(0, {root!r})
"""
IMPORTS = """
import mha_jax, mha_jax.analysis, mha_jax.linen, mha_jax.nnx
assert all(hasattr(mha_jax, name) for name in mha_jax.__all__)
"""


def closure(names: set[str]) -> set[str]:
    """Distributions, and what they need here, and so on."""
    found: set[str] = set()
    todo = {(canonicalize_name(name), "") for name in names}
    while todo:
        name, extra = todo.pop()
        try:
            needed = map(Requirement, requires(name) or ())
        except PackageNotFoundError:  # for another system, or an option that is not installed
            continue
        found.add(name)
        for need in needed:
            if need.marker is None or need.marker.evaluate({"extra": extra}):
                more = {(canonicalize_name(need.name), option) for option in (need.extras or {""})}
                todo |= {one for one in more if one[0] not in found}
    return found


def others() -> set[str]:
    """Top-level names of whatever is installed here that `mha_jax` does not declare, nor what it declares need."""
    own = closure({Requirement(line).name for line in PROJECT["dependencies"]})
    return {
        name
        for name, distributions in packages_distributions().items()
        if not own & {canonicalize_name(one) for one in distributions}
    } - {"mha_jax"}


def run_without_others(code: str) -> subprocess.CompletedProcess[str]:
    before = WITHOUT.format(blocked=others() | {"theory", "experiments"}, root=str(ROOT))
    return subprocess.run([sys.executable, "-c", before + code], capture_output=True, text=True, cwd="/")


def test_the_package_imports_with_what_it_declares():
    assert {"matplotlib", "tyro", "pytest", "safetensors"} <= others()
    assert not {"jax", "flax", "numpy", "jaxtyping", "optax"} & others()  # optax comes with flax
    done = run_without_others(IMPORTS)
    assert done.returncode == 0, done.stderr


def test_what_it_does_not_declare_is_out_of_reach():
    assert "No module named 'matplotlib'" in run_without_others("import matplotlib").stderr


@pytest.mark.slow
def test_the_wheel_installs_alone_and_runs_the_example(tmp_path):
    """In an empty environment; needs a network, and fails without one."""

    def run(*words: str, **options) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(words, capture_output=True, text=True, **options)
        assert done.returncode == 0, done.stderr
        return done

    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(tmp_path), str(ROOT))
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names} == {"mha_jax", f"mha_jax-{PROJECT['version']}.dist-info"}
    assert any(name.endswith("licenses/LICENSE") for name in names)

    run(sys.executable, "-m", "venv", str(tmp_path / "venv"))
    python = str(tmp_path / "venv" / "bin" / "python")
    run(python, "-m", "pip", "install", "--quiet", "-c", str(ROOT / "constraints.txt"), str(wheel))
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    code = (
        IMPORTS + kernel_blocks()[0] + "\nassert losses[-1] < losses[0] / 2, losses\nprint(mha_jax.__file__)"
    )
    assert str(tmp_path) in run(python, "-c", code, cwd=tmp_path, env=kept).stdout
    listed = run(python, "-m", "pip", "list", "--format=freeze").stdout.lower()
    assert "matplotlib" not in listed
