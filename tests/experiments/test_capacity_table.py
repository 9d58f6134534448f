"""The tables of a capacity run."""

import io

import pytest
from rich.console import Console

from experiments.capacity import table
from experiments.capacity.experiment import EXPERIMENT
from tests.experiments.capacity_records import make_data


@pytest.fixture(scope="module")
def data():
    return make_data()


def test_table_says_what_the_records_say(data):
    cells = table.threshold_cells(data)
    assert cells is not None
    for row in cells.rows:
        here = [
            r
            for r in data["records"]["transitions"]
            if r["num_heads"] == int(row[0]) and r["embedding"] == "gaussian"
        ]
        trainers = ("best", "joint", "plain")
        rows = [next(r for r in here if r["trainer"] == name) for name in trainers]
        best = rows[0]
        bounds = f"{best['counting_bound']:.1f}/{best['warren_bound']:.0f}/{best['cap_bound']}"
        predictions = [best[f"{name}_total_key_dim"] for name in ("partition", "parameter_count")]
        partition, law = (
            "∞" if value is None else f"{value:.1f}" if value >= best["cap_bound"] else f"({value:.1f})"
            for value in predictions
        )
        exact = "none" if best["smallest_exact"] is None else str(best["smallest_exact"])
        measured = [
            "not reached"
            if r["status"] == "not_reached"
            else f"{r['measured_total_key_dim']:.1f}\n[{r['ci_low']:.1f}–{r['ci_high']:.1f}]"
            for r in rows
        ]
        assert row[1:] == (bounds, partition, measured[0], exact, *measured[1:], law)


def test_table_fits_a_terminal_of_80_columns(data):
    console = Console(file=io.StringIO(), width=80)
    EXPERIMENT.show(data, console)
    out = console.file.getvalue()  # type: ignore[attr-defined]
    assert max(map(len, out.splitlines())) <= 80
    assert "[13.6–18.0]" in out
    assert "…" not in out


def test_ceiling_and_real_tables_give_the_distance_from_the_prediction(data):
    (row,) = table.ceiling_cells(data).rows  # type: ignore[union-attr]
    (record,) = data["records"]["ceilings"]
    assert row[-1] == f"{record['measured_num_items'] / record['predicted_num_items']:.2f}"
    arms = table.real_cells(data)
    assert arms is not None
    assert [row[0].split()[0] for row in arms.rows] == ["permutation"] * 3 + ["words", "words-shuffled"]
    assert arms.rows[3][3].startswith("0.")
    lines = [line for line in arms.markdown().splitlines() if line.startswith("|")]
    assert len(lines) == 2 + len(arms.rows)
    assert {line.count("|") for line in lines} == {len(arms.columns) + 1}


def test_status_words():
    record = make_data()["records"]["transitions"][0]
    assert table.measured(None) == "not run"
    assert table.measured({**record, "status": "not_run"}) == "not run"
    assert table.measured({**record, "status": "not_reached"}) == "not reached"
    reached = {**record, "status": "reached", "measured_total_key_dim": 8.0}
    assert table.measured({**reached, "ci_low": None, "ci_high": None}) == "8.0"
    assert table.measured({**reached, "ci_low": 7.0, "ci_high": None}) == "8.0 [7.0–?]"
