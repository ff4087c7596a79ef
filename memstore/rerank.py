"""Reranking: a model that reads query and text together looks at the first ranks again.

It is called outside of every transaction and lock, with the text of each item that ranks best. What it says of the
first ranks decides their order; those after them follow as they were, so that pages join.
"""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, TypeAlias

from memstore.config import is_share, to_whole
from memstore.errors import InvalidArgument, RerankError
from memstore.late import LateInteraction
from memstore.models import LocalCrossEncoder

Reranker: TypeAlias = Callable[[str, list[str]], Sequence[float] | Awaitable[Sequence[float]]]
"""Scores texts for a query, higher is better."""
_FIRST: Final = 50
"""Ranks that are looked at again."""
_MODELS_KEPT: Final = 4


@dataclass(frozen=True, slots=True)
class Rerank:
    """How the first ranks are ordered anew.

    Attributes:
        model: Any callable `(query, texts) -> scores`, perhaps async; or the name or folder of a cross-encoder of
            sentence-transformers. None for none.
        first: How many ranks it looks at.
        weight: Its share of the final score, the rest being the score there was; 1.0 leaves it to the model alone.
            Where it is None, that of a `LateInteraction`, else 1.0.
    """

    model: Reranker | str | None
    first: int = _FIRST
    weight: float | None = None

    def __post_init__(self) -> None:
        if (to_whole(self.first) or 0) < 1:
            raise InvalidArgument("Rerank: first is a number of ranks, 1 or more")
        if self.weight is not None and not is_share(self.weight):
            raise InvalidArgument("Rerank: weight is more than 0 and at most 1, or None")
        if isinstance(self.model, str) and not self.model.strip():
            raise InvalidArgument("Rerank: the model's name is empty")
        if self.model is not None and not isinstance(self.model, str) and not callable(self.model):
            raise InvalidArgument(f"Rerank: expected a callable or a model's name, got {type(self.model).__name__}")

    def score(self, query: str, texts: Sequence[str]) -> list[float]:
        """Ask the model.

        Raises:
            RerankError: It gives no score for each text, or is async.
            ModelUnavailable: It cannot be loaded.
        """
        given = self._call(query, list(texts))
        if inspect.isawaitable(given):
            if inspect.iscoroutine(given):
                given.close()
            raise RerankError("it is async; await asearch or abatch")
        return _checked(given, len(texts))

    async def ascore(self, query: str, texts: Sequence[str]) -> list[float]:
        """Ask the model as `score` does: one that is not async on a thread of its own."""
        call = self._call
        given = call(query, list(texts)) if _is_async(call) else await asyncio.to_thread(call, query, list(texts))
        return _checked(await given if inspect.isawaitable(given) else given, len(texts))

    def join(self, scores: Sequence[float], given: Sequence[float]) -> list[float]:
        """Give final scores of what the search and the model said."""
        model = self.model
        own = self.weight or (model.weight if isinstance(model, LateInteraction) else 1.0)
        return [(1 - own) * score + own * said for score, said in zip(scores, given, strict=True)]

    @property
    def _call(self) -> Any:
        return _load(self.model) if isinstance(self.model, str) else self.model


def to_rerank(given: Any) -> Rerank | None:
    """Read what `rerank` may be; None leaves it open, False turns it off.

    Raises:
        InvalidArgument: It is nothing of the kind.
    """
    if given is None or isinstance(given, Rerank):
        return given
    return Rerank(None if given is False else given)


@lru_cache(maxsize=_MODELS_KEPT)
def _load(name: str) -> LocalCrossEncoder:
    return LocalCrossEncoder(name)


def _is_async(call: Any) -> bool:
    return inspect.iscoroutinefunction(call) or inspect.iscoroutinefunction(getattr(call, "__call__", None))  # noqa: B004


def _checked(given: Any, count: int) -> list[float]:
    if isinstance(given, str | bytes):
        raise RerankError(f"expected a list of {count} numbers, got {type(given).__name__}")
    try:
        scores = [float(score) for score in given]
    except (TypeError, ValueError, OverflowError) as error:
        raise RerankError(f"expected a list of {count} numbers, got {type(given).__name__}") from error
    if len(scores) != count:
        raise RerankError(f"expected {count} scores, one for each text, got {len(scores)}")
    if not all(map(math.isfinite, scores)):
        raise RerankError("expected finite numbers, got NaN or an infinity")
    return scores
