"""Embeddings that show how a store treats its model: from a table, sync or async alone, failing, or held up."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, Final

from langchain_core.embeddings import Embeddings

from tests.support import WordEmbeddings


def embedded(embeddings: WordEmbeddings) -> list[str]:
    """Give all texts that a model was given, in order."""
    return list(chain(*embeddings.documents))


class TableEmbeddings(Embeddings):
    """Gives each text the vector that a table has for it."""

    def __init__(self, table: Mapping[str, Sequence[float]]) -> None:
        self.table = table

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Look texts up."""
        return [self.embed_query(text) for text in texts]

    def embed_query(self, text: str) -> list[float]:
        """Look a query up."""
        return list(self.table[text])


class AsyncEmbeddings(WordEmbeddings):
    """Can only be awaited: whoever calls it plainly is told so."""

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Refuse."""
        raise AssertionError(f"embed_documents was called for {len(texts)} texts of an async call")

    def embed_query(self, text: str) -> list[float]:
        """Refuse."""
        raise AssertionError(f"embed_query was called for {len(text)} characters of an async call")

    async def aembed_documents(self, texts: list[str]) -> list[list[float]]:
        """Embed texts."""
        self.documents.append(list(texts))
        return [self._vector(text) for text in texts]

    async def aembed_query(self, text: str) -> list[float]:
        """Embed a query."""
        self.queries.append(text)
        return self._vector(text)


WORKING: Final[Any] = object()
"""What lets `OddEmbeddings` work."""


class OddEmbeddings(WordEmbeddings):
    """Gives what a test tells it to for texts, for queries, or for both."""

    def __init__(self, dims: int = 4) -> None:
        super().__init__(dims)
        self.answer: Any = WORKING
        """What `embed_documents` returns."""
        self.query_answer: Any = WORKING
        """What `embed_query` returns."""

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Embed texts, or not."""
        odd: list[list[float]] = self.answer
        return super().embed_documents(texts) if odd is WORKING else odd

    def embed_query(self, text: str) -> list[float]:
        """Embed a query, or not."""
        odd: list[float] = self.query_answer
        return super().embed_query(text) if odd is WORKING else odd


class ModelDown(Exception):
    """What a failing model raises."""


class FailingEmbeddings(WordEmbeddings):
    """Fails at any list that holds the text `bad`."""

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Embed texts that are not bad."""
        if "bad" in texts:
            raise ModelDown
        return super().embed_documents(texts)


class GatedEmbeddings(AsyncEmbeddings):
    """Waits, in async calls, until the test opens its gate."""

    def __init__(self) -> None:
        super().__init__()
        self.entered = asyncio.Event()
        self.gate = asyncio.Event()

    async def aembed_documents(self, texts: list[str]) -> list[list[float]]:
        """Embed texts once the gate is open."""
        self.entered.set()
        await self.gate.wait()
        return await super().aembed_documents(texts)

    async def aembed_query(self, text: str) -> list[float]:
        """Embed a query once the gate is open."""
        self.entered.set()
        await self.gate.wait()
        return await super().aembed_query(text)


class NamedEmbeddings(WordEmbeddings):
    """Says which model it is, as LangChain's own embeddings do."""

    def __init__(self, model: str) -> None:
        super().__init__()
        self.model = model
