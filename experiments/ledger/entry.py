"""What a row of the ledger is, and how its verdict follows from its parts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from experiments.ledger.books import Books, command_of, unfinished
from experiments.reading import listed

HOLDS, HOLDS_WHERE, FAILS, UNDECIDED, NOT_TESTED = (
    "holds",
    "holds where",
    "fails",
    "undecided",
    "not tested",
)


class Part(NamedTuple):
    """A condition under which a claim was tested.

    Attributes:
        where: the condition, or the part of the claim, to be read after "holds where:", "not:" or "undecided:".
        holds: whether the claim holds there; None where what was measured neither shows nor contradicts it.
        measured: the numbers that say so, with intervals where the records have them.
    """

    where: str
    holds: bool | None
    measured: str


@dataclass(frozen=True)
class Entry:
    """A claim and its rule.

    Attributes:
        name: short and unique.
        claim: what is said, in our words.
        counts: what was predicted, or what counts as holding, in words and with the rule's own numbers.
        needs: names of record files, ``capacity/quick``, without any of which there is no verdict.
        judge: from the records to parts; none where these records cannot tell.
        figure: path from the root, without a suffix; empty for none.
        article: number of the claim in the article.
        papers: where else it is said.
        untested: why no run here can tell, where that is so; then `judge` gives nothing.
    """

    name: str
    claim: str
    counts: str
    needs: tuple[str, ...]
    judge: Callable[[Books], Sequence[Part]] = field(repr=False)
    figure: str = ""
    article: int | None = None
    papers: tuple[str, ...] = ()
    untested: str = ""

    @property
    def said(self) -> str:
        """Where it is said: the article first."""
        own = () if self.article is None else (f"article, claim {self.article}",)
        return "; ".join((*own, *self.papers))


class Row(NamedTuple):
    """An entry and what the records say of it.

    Attributes:
        entry: the claim.
        verdict: one of the five words.
        where: under which conditions it holds.
        not_where: under which it does not.
        undecided: under which what was measured does not tell.
        measured: the numbers; for ``not tested`` the command, or why none would tell.
        commands: what made the records, with what there is to say of it (" (as far as it got)").
    """

    entry: Entry
    verdict: str
    where: tuple[str, ...]
    not_where: tuple[str, ...]
    undecided: tuple[str, ...]
    measured: str
    commands: Mapping[str, str]

    @property
    def sentence(self) -> str:
        """The verdict in words; of more than one kind of part with all of them."""
        kinds = {"Not": self.not_where, "Undecided": self.undecided}
        said = [f"{kind}: {'; '.join(parts)}" for kind, parts in kinds.items() if parts]
        if self.verdict == HOLDS_WHERE:
            return ". ".join([f"{HOLDS_WHERE}: {'; '.join(self.where)}", *said])
        return ". ".join([self.verdict, *said]) if len(said) > 1 else self.verdict


def judge_entry(entry: Entry, books: Books) -> Row:
    """The row of one claim."""
    commands = {
        command_of(name, books): " (as far as it got)" if unfinished(name, books) else ""
        for name in entry.needs
    }
    missing = [name for name in entry.needs if name not in books]
    parts = () if missing or entry.untested else tuple(entry.judge(books))
    if not parts:
        wanted = [command_of(name, books) for name in missing]
        text = entry.untested or f"would tell: {listed(_code(wanted or [list(commands)[-1]]))}"
        return Row(entry, NOT_TESTED, (), (), (), text, commands)
    return Row(
        entry,
        verdict(part.holds for part in parts),
        tuple(part.where for part in parts if part.holds),
        tuple(part.where for part in parts if part.holds is False),
        tuple(part.where for part in parts if part.holds is None),
        "; ".join(part.measured for part in parts),
        commands,
    )


def verdict(held: Iterable[bool | None]) -> str:
    """All: ``holds``; some: ``holds where``; none but contradicted somewhere: ``fails``; else ``undecided``.

    Raises:
        ValueError: nothing was judged.
    """
    held = list(held)
    if not held:
        raise ValueError("held: expected at least one part, got none")
    if True in held:
        return HOLDS if all(held) else HOLDS_WHERE
    return FAILS if False in held else UNDECIDED


def _code(commands: Iterable[str]) -> list[str]:
    return [f"`{command}`" for command in dict.fromkeys(commands)]
