"""What every bound does with its arguments: errors, broadcasting, kinds of numbers returned."""

import math
import re

import numpy as np
import pytest

import theory.bounds as bounds

GOOD = {
    "counting_bound": {"log2_num_graphs": 500.0, "d_model": 16, "bits_per_parameter": 4.0},
    "warren_bound": {"log2_num_graphs": 500.0, "num_items": 97, "d_model": 16, "num_heads": 3},
    "cover_max_items": {"d_model": 5, "num_heads": 2},
    "one_dimensional_cap": {"num_heads": 3},
    "one_dimensional_f1_cap": {"num_heads": 3, "num_edges": 29},
    "gardner_capacity": {"positive_fraction": 0.3},
    "gardner_threshold": {"positive_fraction": 0.3},
    "width_requirement": {"num_positive": 3.5, "num_negative": 90},
    "transition_width": {"num_positive": 3.5, "num_negative": 90},
    "matrix_width": {"d_model": 7, "head_dim": 2.5},
    "single_head_max_items": {"d_model": 7},
    "convex_success_probability": {"num_items": 23, "num_edges": 29, "d_model": 7},
    "held_edges": {"num_items": 23, "d_model": 7, "head_dim": 2.5},
    "partition_head_dim": {"num_items": 23, "num_edges": 29, "d_model": 7, "num_heads": 3},
    "partition_max_edges": {"num_items": 23, "d_model": 7, "num_heads": 3, "head_dim": 2.5},
    "max_edges": {"num_items": 23, "num_heads": 3, "width": 31.5},
    "partition_total_key_dim": {"num_items": 23, "num_edges": 29, "d_model": 7, "num_heads": 3},
    "parameter_count_total_key_dim": {"num_items": 23, "num_edges": 29, "d_model": 7, "num_heads": 3},
    "greedy_max_items": {"d_model": 7, "num_heads": 2},
    "max_of_heads_requirement": {"num_items": 23, "num_edges": 29, "num_heads": 3},
    "max_of_heads_total_key_dim": {"num_items": 23, "num_edges": 29, "d_model": 7, "num_heads": 3},
    "first_moment_requirement": {"num_items": 23, "num_edges": 29, "num_heads": 3},
    "first_moment_total_key_dim": {"num_items": 23, "num_edges": 29, "d_model": 7, "num_heads": 3},
    "owning_probability": {"num_items": 23, "num_edges": 29, "d_model": 7, "head_dim": 2, "own": 9},
    "gordon_total_key_dim": {"num_items": 23, "num_edges": 29, "d_model": 7, "num_heads": 3},
    "head_window": {"total_key_dim": 12, "num_items": 23, "num_edges": 29, "d_model": 7},
}
SCALAR_ONLY = (
    "head_window",
    "one_dimensional_f1_cap",
    "max_of_heads_requirement",
    "max_of_heads_total_key_dim",
    "first_moment_requirement",
    "first_moment_total_key_dim",
    "owning_probability",
    "gordon_total_key_dim",
)
INTEGERS = {"d_model", "num_items", "num_edges", "num_heads", "total_key_dim", "own"}
BAD = [
    (name, argument, value)
    for name, arguments in GOOD.items()
    for argument in arguments
    for value in (
        [0, -3, 2.5, math.nan, math.inf, True] if argument in INTEGERS else [-1.0, math.nan, math.inf, False]
    )
]


def test_every_public_name_is_covered():
    assert set(GOOD) == set(bounds.__all__)


@pytest.mark.parametrize(("name", "argument", "value"), BAD)
def test_bad_number_is_refused_by_name(name, argument, value):
    shown = value if isinstance(value, bool) else f"{value:g}"
    with pytest.raises(ValueError, match=rf"^{argument}: expected .*, got {re.escape(str(shown))}$"):
        getattr(bounds, name)(**GOOD[name] | {argument: value})


@pytest.mark.parametrize("name", [name for name in GOOD if name not in SCALAR_ONLY])
def test_one_bad_element_of_an_array_is_refused(name):
    argument, good = next(iter(GOOD[name].items()))
    with pytest.raises(ValueError, match=f"^{argument}: expected .*, got nan$"):
        getattr(bounds, name)(**GOOD[name] | {argument: np.array([good, np.nan])})


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        (
            "gardner_capacity",
            {"positive_fraction": 1.5},
            "positive_fraction: expected a number in [0, 1], got 1.5",
        ),
        ("matrix_width", {"head_dim": 0}, "head_dim: expected a positive finite number, got 0"),
        ("held_edges", {"num_items": 1}, "num_items: expected an integer of at least 2, got 1"),
        ("greedy_max_items", {"d_model": 1}, "d_model: expected an integer of at least 2, got 1"),
        (
            "partition_head_dim",
            {"num_items": 5, "num_edges": 21},
            "num_edges: expected at most num_items * (num_items - 1) = 20, got 21",
        ),
        (
            "convex_success_probability",
            {"num_items": 5, "num_edges": 21},
            "num_edges: expected at most num_items * (num_items - 1) = 20, got 21",
        ),
        (
            "warren_bound",
            {"d_model": np.array([2, 3]), "num_heads": np.array([1, 2, 3])},
            "log2_num_graphs, num_items, d_model, num_heads: expected shapes that broadcast, "
            "got [(), (), (2,), (3,)]",
        ),
        (
            "head_window",
            {"total_key_dim": 24, "num_items": 5, "num_edges": 21},
            "num_edges: expected at most num_items * (num_items - 1) = 20, got 21",
        ),
    ],
)
def test_message(name, change, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        getattr(bounds, name)(**GOOD[name] | change)


@pytest.mark.parametrize("name", [name for name in GOOD if name not in SCALAR_ONLY])
def test_scalars_give_numbers_and_arrays_give_arrays(name):
    function, arguments = getattr(bounds, name), GOOD[name]
    kind = int if name in ("cover_max_items", "one_dimensional_cap") else float
    scalar = function(**arguments)
    assert type(scalar) is kind
    assert type(function(**{k: np.array(v)[()] for k, v in arguments.items()})) is kind  # NumPy scalars
    # One argument at a time varies along its own axis; every element equals the call on scalars.
    axes = len(arguments)
    arrays = {
        k: np.array([v, v / 2 if k == "positive_fraction" else v + 1]).reshape((-1,) + (1,) * (axes - 1 - i))
        for i, (k, v) in enumerate(arguments.items())
    }
    table = function(**arrays)
    assert table.shape == (2,) * axes
    assert table.dtype == (np.int64 if kind is int else np.float64)
    assert table[(0,) * axes] == pytest.approx(scalar, rel=1e-12)
    corner = {k: v.flat[1].item() for k, v in arrays.items()}
    assert table[(1,) * axes] == pytest.approx(function(**corner), rel=1e-12)


def test_empty_arrays_stay_empty():
    nothing = np.zeros(0)
    assert bounds.gardner_capacity(nothing).shape == (0,)
    assert bounds.partition_head_dim(96, 96, 16, nothing).shape == (0,)
    assert bounds.matrix_width(16, nothing).shape == (0,)


def test_results_are_repeatable_without_the_cache():
    from theory.bounds import width

    before = bounds.matrix_width(16, np.arange(1, 17))
    width._table.cache_clear()
    np.testing.assert_array_equal(bounds.matrix_width(16, np.arange(1, 17)), before)
