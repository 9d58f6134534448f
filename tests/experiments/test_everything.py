"""Commands over all experiments: figures are drawn again and compared, presets `paper` are counted."""

import shutil
from pathlib import Path

import pytest
from rich.console import Console

from experiments import cli
from experiments.engine import EXPERIMENTS, load
from experiments.everything import drawings, left_of_paper, paper, redraw

COMMITTED = Path(__file__).parents[2] / "figures"


def test_all_committed_records_are_drawn():
    found = {(d.experiment, d.path.stem) for d in drawings()}
    for name in EXPERIMENTS:
        for path in (COMMITTED / name).glob("*.json"):
            assert (name, path.stem) in found
    assert {("bench", "attention"), ("bench", "decode"), ("bench", "heads")} <= found


def test_a_figure_that_is_not_what_its_records_say_is_found(tmp_path):
    folder = tmp_path / "bench"
    folder.mkdir()
    for path in (COMMITTED / "bench").glob("heads*"):
        shutil.copy(path, folder)
    console = Console(record=True, width=200)
    assert redraw(console, tmp_path, check=True) == 0
    svg = folder / "heads.svg"
    svg.write_bytes(svg.read_bytes() + b" ")
    assert redraw(console, tmp_path, check=True) == 1
    assert "differs from its records" in console.export_text()
    assert redraw(console, tmp_path) == 0
    assert svg.read_bytes() == (COMMITTED / "bench" / "heads.svg").read_bytes()


def test_what_is_left_of_a_preset_takes_as_long_as_its_work(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    left = left_of_paper("rank", COMMITTED)
    experiment = load("rank")
    weights = {
        preset: sum(part.weight for part in experiment.parts(experiment.presets[preset], lambda points: []))
        for preset in ("quick", "paper")
    }
    assert left.parts == left.unfinished > 0
    assert weights["paper"] > weights["quick"]
    assert left.seconds is not None
    assert left.seconds > 0


def test_nobody_to_ask_is_an_error():
    with pytest.raises(ValueError, match="--yes"):
        paper(Console(quiet=True))


@pytest.mark.parametrize("command", ["figures", "paper", "restore", "collect", "plan"])
def test_every_command_has_help(command, capsys):
    with pytest.raises(SystemExit) as left:
        cli.main([command, "--help"])
    assert left.value.code == 0
    assert f"python -m experiments {command}" in capsys.readouterr().out


def test_an_option_that_there_is_not_is_refused(capsys):
    with pytest.raises(SystemExit):
        cli.main(["figures", "--draw"])
    assert "--draw" in capsys.readouterr().err
