"""How one search ranks, beside what LangGraph's op says: checked once, and completed by what the store says."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from memstore.config import MAX_CONTEXT, IndexSettings, Mode, check_mode, to_number, to_whole
from memstore.errors import InvalidArgument, InvalidConfig
from memstore.rerank import Rerank, to_rerank


@dataclass(frozen=True, slots=True)
class Options:
    """What a search says of its ranking; each is None where it leaves that to the store, and off where neither says."""

    mode: Mode | None = None
    context: int | None = None
    """Neighbours in writing order, on each side, that lend an item of their scores."""
    min_score: float | None = None
    recency: float | None = None
    """Half-life in days."""
    rerank: Rerank | None = None

    def over(self, store: Options, mode: Mode) -> Options:
        """Complete these by a store's, for a mode.

        Raises:
            InvalidArgument: The search asks for what its mode does not give.
        """
        worded = mode != "semantic"
        asked = (("context", self.context), ("recency", None if self.recency == math.inf else self.recency))
        wanted = [name for name, given in asked if given]
        if wanted and not worded:
            raise InvalidArgument(
                f"{wanted[0]} needs mode 'hybrid' or 'lexical'; in 'semantic' the score is the metric's own"
            )
        recency = store.recency if self.recency is None else self.recency
        rerank = store.rerank if self.rerank is None else self.rerank
        return Options(
            mode=mode,
            context=(store.context if self.context is None else self.context) if worded else 0,
            min_score=store.min_score if self.min_score is None else self.min_score,
            recency=recency if worded and recency != math.inf else None,
            rerank=rerank if rerank is not None and rerank.model is not None else None,
        )


NOTHING_SAID = Options()


def to_options(
    mode: Any = None, context: Any = None, min_score: Any = None, recency: Any = None, rerank: Any = None
) -> Options:
    """Check what a search says of its ranking.

    Raises:
        InvalidArgument: Something of it cannot be used.
    """
    whole, least, half_life = to_whole(context), to_number(min_score), to_number(recency)
    if context is not None and (whole is None or not 0 <= whole <= MAX_CONTEXT):
        raise InvalidArgument(f"context is a number of neighbours, from 0 to {MAX_CONTEXT}")
    if min_score is not None and (least is None or math.isnan(least)):
        raise InvalidArgument("min_score is a number; -math.inf turns the store's off")
    if recency is not None and (half_life is None or not half_life > 0):
        raise InvalidArgument("recency is a half-life in days, more than 0; math.inf turns the store's off")
    return Options(check_mode(mode), whole, least, half_life, to_rerank(rerank))


def of_store(settings: IndexSettings | None) -> Options:
    """Give the options of a store.

    Raises:
        InvalidConfig: Its reranker is none.
    """
    if settings is None:
        return Options(context=0)
    try:
        rerank = to_rerank(settings.rerank)
    except InvalidArgument as error:
        raise InvalidConfig(f"index['rerank']: {str(error).partition(': ')[2]}") from None
    return Options(None, settings.context, settings.min_score, settings.recency, rerank)
