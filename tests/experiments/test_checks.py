"""Checks of configurations: the field, what was expected and what came are named, and nothing right is refused."""

from dataclasses import dataclass, replace
from functools import partial

import pytest

from experiments import checks


@dataclass(frozen=True)
class Config:
    seeds: int = 8
    extra: int = 0
    rate: float = 0.1
    sizes: tuple[int, ...] = (8, 16)
    factors: tuple[float, ...] = (0.5, 1.0)
    names: tuple[str, ...] = ("a", "b")
    text: str = ""
    deep: bool = False


positive = partial(checks.positive, or_zero=("extra",))
CHECKS = {
    "positive": positive,
    "different": checks.different,
    "some": lambda config: checks.some(config, "sizes", "names"),
    "known": lambda config: checks.known(config, names=("a", "b", "c"), text=("", "sample")),
    "least": lambda config: checks.least(config, seeds=2, sizes=4),
    "within": lambda config: checks.within(config, sizes=(8, 16), seeds=(8, 9)),
    "multiple": lambda config: checks.multiple(config, sizes=4, seeds=8),
    "paired": lambda config: checks.paired(config, "factors", "sizes"),
}


@pytest.mark.parametrize("name", CHECKS)
def test_what_is_right_passes(name):
    CHECKS[name](Config())


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("positive", {"seeds": 0}, "seeds: expected a positive integer, got 0"),
        ("positive", {"extra": -1}, "extra: expected 0 or a positive integer, got -1"),
        ("positive", {"rate": 0.0}, "rate: expected a positive number, got 0.0"),
        ("positive", {"rate": float("nan")}, "rate: expected a positive number, got nan"),
        ("positive", {"sizes": (8, 0)}, "sizes: expected positive integers, got 0"),
        ("positive", {"factors": (float("inf"),)}, "factors: expected positive numbers, got inf"),
        ("different", {"names": ("a", "b", "a")}, "names: expected different values, got ('a', 'b', 'a')"),
        ("some", {"names": ()}, "names: expected at least one, got none"),
        ("known", {"names": ("a", "x", "y")}, "names: expected names among a, b, c, got x, y"),
        ("known", {"text": "other"}, "text: expected names among , sample, got other"),
        ("least", {"seeds": 1}, "seeds: expected at least 2, got 1"),
        ("least", {"sizes": (4, 3)}, "sizes: expected at least 4, got 3"),
        ("within", {"sizes": (8, 17)}, "sizes: expected 8 to 16, got 17"),
        ("within", {"seeds": 7}, "seeds: expected 8 to 9, got 7"),
        ("multiple", {"sizes": (8, 10)}, "sizes: expected a multiple of 4, got 10"),
        ("paired", {"factors": (1.0,)}, "factors: expected one for each of sizes = (8, 16), got (1.0,)"),
    ],
)
def test_what_is_wrong_is_named(name, changes, message):
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        CHECKS[name](replace(Config(), **changes))
    assert str(caught.value) == message


def test_fields_can_be_left_out():
    checks.positive(Config(seeds=-1), or_zero=("extra",), but=("seeds",))
    checks.different(Config(names=("a", "a")), but=("names",))
