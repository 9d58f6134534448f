"""Checks that the configurations of several experiments need.

Each takes a configuration and names of its fields, and raises a ValueError that names the field, what was expected and
what came. A field holds one value or a tuple of values; what is asked of a value is asked of every one of a tuple.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection
from typing import Any


def positive(config: Any, *, or_zero: Collection[str] = (), but: Collection[str] = ()) -> None:
    """Numbers are positive and finite, in all fields ``but`` these, or 0 where that says to leave something out."""
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        for one in _each(value):
            if field.name in but or isinstance(one, str | bool) or 0 < one < math.inf:
                continue
            if one == 0 and field.name in or_zero:
                continue
            zero = "0 or " if field.name in or_zero else ""
            what = "integer" if isinstance(one, int) else "number"
            what = f"{zero}positive {what}s" if isinstance(value, tuple) else f"{zero}a positive {what}"
            raise ValueError(f"{field.name}: expected {what}, got {one}")


def different(config: Any, *, but: Collection[str] = ()) -> None:
    """No tuple has a value twice, in all fields ``but`` these."""
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if field.name not in but and isinstance(value, tuple) and len(set(value)) < len(value):
            raise ValueError(f"{field.name}: expected different values, got {value}")


def some(config: Any, *names: str) -> None:
    """These tuples have at least one value."""
    for name in names:
        if not getattr(config, name):
            raise ValueError(f"{name}: expected at least one, got none")


def known(config: Any, **names: Collection[str]) -> None:
    """The values of a field are among those given for it."""
    for name, among in names.items():
        unknown = [one for one in _each(getattr(config, name)) if one not in among]
        if unknown:
            raise ValueError(f"{name}: expected names among {', '.join(among)}, got {', '.join(unknown)}")


def least(config: Any, **bounds: int) -> None:
    """The values of a field are not below the number given for it."""
    for name, bound in bounds.items():
        for one in _each(getattr(config, name)):
            if one < bound:
                raise ValueError(f"{name}: expected at least {bound}, got {one}")


def most(config: Any, what: str, **bounds: int) -> None:
    """The values of a field are not above the number given for it, which is that of ``what``."""
    for name, bound in bounds.items():
        for one in _each(getattr(config, name)):
            if one > bound:
                raise ValueError(f"{name}: expected at most the {bound} {what}, got {one}")


def within(config: Any, **bounds: tuple[int, int]) -> None:
    """The values of a field lie between the two numbers given for it, or are one of them."""
    for name, (low, high) in bounds.items():
        for one in _each(getattr(config, name)):
            if not low <= one <= high:
                raise ValueError(f"{name}: expected {low} to {high}, got {one}")


def multiple(config: Any, **units: int) -> None:
    """The values of a field are multiples of the number given for it."""
    for name, unit in units.items():
        for one in _each(getattr(config, name)):
            if one % unit:
                raise ValueError(f"{name}: expected a multiple of {unit}, got {one}")


def paired(config: Any, name: str, other: str) -> None:
    """A tuple has one value for each of another."""
    value, others = getattr(config, name), getattr(config, other)
    if len(value) != len(others):
        raise ValueError(f"{name}: expected one for each of {other} = {others}, got {value}")


def _each(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)
