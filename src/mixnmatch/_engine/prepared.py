"""Rows prepared once for the many passes of a fit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from mixnmatch._engine.block import Block
from mixnmatch._engine.fitting import count_pass
from mixnmatch._engine.passes import add, run_blocks, total
from mixnmatch._engine.rows import Rows

T = TypeVar("T")
# Tables of up to so many entries are prepared once and kept; larger ones, and those on Dask, in every pass again. What
# is kept of tables in memory may be larger where it is in float32.
KEPT_ENTRIES, KEPT_SINGLE = 4_000_000, 32_000_000
# Bytes of scores in a block of a pass whose sums must be the same to the last bit whatever block size users ask for:
# where a loss is flat, a search would turn a difference in the last bit into one that shows.
FIXED_BYTES = 1 << 19


@dataclass(frozen=True, eq=False)
class Prepared:
    """A source whose statistics all read ``prepare(block, *settings)``."""

    source: Rows
    prepare: Callable[..., Any]
    settings: tuple[Any, ...]
    kept: list[Any]
    block_bytes: int | None = None

    @classmethod
    def of(
        cls,
        source: Rows,
        prepare: Callable[..., Any],
        *settings: Any,
        block_bytes: int | None = None,
        single: bool = False,
    ) -> Prepared:
        """Prepare the rows of a source: once if they are few and in memory, otherwise in every pass.

        ``single`` says that what is prepared takes no more than four bytes an entry.
        """
        in_file = isinstance(source.scores.values, np.memmap)
        small = source.n_entries <= (KEPT_SINGLE if single and not in_file else KEPT_ENTRIES) and not source.on_dask
        kept = list(source.map_blocks(prepare, *settings, block_bytes=block_bytes)) if small else []
        return cls(source, prepare, settings, kept, block_bytes)

    def then(self, step: Callable[..., Any], *settings: Any) -> Prepared:
        """Apply ``step(prepared, *settings)`` to the rows; the result is kept if they are kept."""
        kept = list(self._over_kept(step, *settings)) if self.kept else []
        return Prepared(
            self.source, _one_after_the_other, (self.prepare, self.settings, step, settings), kept, self.block_bytes
        )

    def total(self, statistic: Callable[..., T], *args: Any, combine: Callable[[T, T], T] = add) -> T:
        """Sum of ``statistic(prepared, *args)`` over all blocks, in block order, or what ``combine`` makes of them."""
        if not self.kept:
            own = self.prepare, self.settings, statistic, args
            found: T = self.source.total(_prepared_statistic, *own, block_bytes=self.block_bytes, combine=combine)
            return found
        return total(self._over_kept(statistic, *args), combine)

    def _over_kept(self, work: Callable[..., T], *args: Any) -> Iterator[T]:
        count_pass()
        one_each = [(number, number + 1) for number in range(len(self.kept))]
        return run_blocks(lambda number, _: work(self.kept[number], *args), one_each)


def _prepared_statistic(
    block: Block, prepare: Callable[..., Any], settings: tuple[Any, ...], statistic: Callable[..., T], args: Any
) -> T:
    return statistic(prepare(block, *settings), *args)


def _one_after_the_other(
    block: Block, prepare: Callable[..., Any], settings: tuple[Any, ...], step: Callable[..., Any], more: Any
) -> Any:
    return step(prepare(block, *settings), *more)
