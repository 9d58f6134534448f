"""The figures of ceilings and of real embeddings."""

import numpy as np
import pytest

from experiments import style
from experiments.capacity.figures_ceiling import ceiling, real
from tests.experiments.capacity_drawing import drawn
from tests.experiments.capacity_records import make_data


@pytest.fixture(scope="module")
def data():
    return make_data()


def test_ceiling_counts_undecided_solves_apart():
    data = make_data(sizes=(), real=False)
    points = data["records"]["ceiling_points"]
    size = points[0]["num_items"]
    mine = [p for p in points if p["num_items"] == size]
    for p, verdict in zip(mine, ["separable"] * 6 + ["inseparable"] * 2 + ["undecided"] * 8, strict=True):
        p["verdict"] = verdict
    undecided = sum(p["verdict"] == "undecided" for p in points)
    figure, caption = drawn(ceiling, data)
    assert f"Undecided solves ({undecided})" in caption
    axes = figure.axes[0]
    diamonds, crosses = (
        [np.asarray(line.get_xydata())[0].tolist() for line in axes.lines if line.get_marker() == marker]
        for marker in "Dx"
    )
    assert diamonds == [[size, 6 / 8]]
    assert [size, 0.5] in crosses
    for p in mine:
        p["verdict"] = "undecided"
    drawn(ceiling, data)


def test_ratios_are_annotated_in_the_real_figure(data):
    figure, _ = drawn(real, data)
    texts = {text.get_text() for text in figure.axes[0].texts}
    for record in data["records"]["transitions"]:
        if record["graph"] == "words" and record["trainer"] == "best":
            assert f"{record['measured_total_key_dim'] / record['partition_total_key_dim']:.2f}" in texts


def test_ratios_are_off_the_lines_they_are_ratios_to():
    data = make_data(heads=(4,), budgets=(), ceilings=(), seeds=2)
    arms = [r for r in data["records"]["transitions"] if r["trainer"] == "best"]
    assert len(arms) == 5
    for share, record in zip((0.7, 0.8, 0.86, 0.9, 1.0), arms, strict=True):
        for name in ("measured_total_key_dim", "ci_low", "ci_high"):
            record[name] = share * record["partition_total_key_dim"]
    figure, _ = drawn(real, data)
    with style.context():
        figure.draw_without_rendering()
    (axes,) = figure.axes
    labels = [text for text in axes.texts if text.get_text()]
    assert len(labels) == 10
    lines = [line for line in axes.lines if line.get_marker() == "None" and np.size(line.get_xdata()) == 2]
    assert len(lines) == 5
    for label in labels:
        box = label.get_window_extent()
        for line in lines:
            (x0, y), (x1, _) = axes.transData.transform(line.get_xydata())
            assert box.x1 < x0 or box.x0 > x1 or not box.y0 < y < box.y1, label.get_text()
