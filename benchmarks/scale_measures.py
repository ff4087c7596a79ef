"""What is measured of stores of one size; every measure is named here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
from langgraph.store.base import PutOp

from benchmarks.oracle import Question
from benchmarks.peers import OWN, Contestant, Setup
from benchmarks.reads import COLD, LIMIT, NEWEST, WARM
from benchmarks.run import Run
from benchmarks.scale_process import ask_process, wait_for_codes
from benchmarks.scale_stores import RANKED
from benchmarks.wide import ask_everything, to_questions
from benchmarks.workload import Query, Workload
from benchmarks.writes import BATCH
from memstore.analysis import to_query_terms
from memstore.indexes.flat import prepare
from memstore.scoring import Query as Ranked

NEWEST_OF_ALL: Final = "newest of everything"
WIDE: Final = "everything"
PUT: Final = "one put"
PUTS: Final = f"batch of {BATCH} puts, full store"
LOSS: Final = f"share of the first {LIMIT} of everything by the whole formula that is found"
AFTER: Final = f"everything, after {BATCH} puts"
OPENING: Final = "opening, {} index file"
WITHOUT: Final = "without"
WITH: Final = "with"
RAW: Final = "vectors alone, MB"
SETTLED: Final = "resident when settled, MB"
PEAK: Final = "resident at most while {}, MB"
DATABASE: Final = "database, MB"
INDEX: Final = "index file, MB"
FIRST: Final = 50
"""Candidates of a first page."""
_OPENED: Final = 10
"""Searches in a process that opens a store."""
_BATCHES: Final = 5
_GROWN: Final = 4
"""What is put in batches is one in so many at most, but one batch."""
_MB: Final = 10**6


def open_apart(run: Run, contestants: Sequence[Contestant], setup: Setup) -> None:
    """Open databases in processes of their own; memstore's by both rankings, without its index file and with it."""
    queries = [run.workload.next_query().text for _ in range(_OPENED)]
    run.values.add(RAW, "(the vectors)", run.workload.sizes.items * setup.dims * 4 / _MB)
    jobs = [
        (base, kind, file)
        for base in contestants
        for kind in (OWN if base.kind in OWN else [base.kind])
        for file in ([WITHOUT, WITH] if base.kind in OWN else [""])
    ]
    for contestant in contestants:
        contestant.close()
        run.values.add(DATABASE, contestant.name, contestant.weigh()["database"] / _MB)
    for base, kind, file in run.shown("opened in processes of their own", jobs, len(jobs)):
        if file == WITHOUT:
            base.drop_index()
        opening = ask_process(kind, base.path, setup, run.workload.lookup, queries)
        measure = OPENING.format(file) if file else "opening"
        run.values.add(f"{measure}, s", kind, opening.seconds)
        run.values.add(f"closing after {measure}, s", kind, opening.closing)
        run.values.add(PEAK.format(measure), kind, opening.peak)
        if file:
            run.values.add(f"coding after {measure}, s", kind, opening.coding)
        run.values.add(PEAK.format(f"closing after {measure}"), kind, opening.closed)
        if file != WITHOUT:
            run.values.add(SETTLED, kind, opening.settled)
            if file:
                run.values.add("coding all vectors anew, s", kind, opening.recoding)
                run.values.add(PEAK.format("coding anew"), kind, opening.recoded)
            run.values.add("of that pages of files, MB", kind, opening.mapped)
            run.values.add("before opening, MB", kind, opening.before)
        if file:
            run.values.add(INDEX, kind, base.weigh()["index file"] / _MB)
    for contestant in contestants:
        contestant.open()


@dataclass(frozen=True, slots=True)
class Turn:
    """Two searches in one namespace that follow each other."""

    opens: bool
    """Whether all stores are opened anew before."""
    users: tuple[int, int]
    """Whose: rankings that share a store search different users, or one would warm the other's up."""
    cold: Query
    warm: Query


def search_users(run: Run) -> None:
    """Search namespaces that were not searched since the stores were opened, and at once again."""
    opened: Turn | None = None
    for turn, contestant in run.turns("user search, cold and warm", plan_turns(run.workload, run.repeats)):
        if turn.opens and turn is not opened:
            opened = turn
            _open_anew(run)
        user = turn.users[contestant.kind == RANKED]
        if contestant.durable:
            run.timed(COLD, contestant, partial(Question(turn.cold, user, LIMIT).ask, contestant.store))
        run.timed(WARM, contestant, partial(Question(turn.warm, user, LIMIT).ask, contestant.store))


def plan_turns(workload: Workload, count: int) -> list[Turn]:
    """Choose users and queries; where all users have had their turn, the stores are to be opened anew."""
    turns: list[Turn] = []
    while len(turns) < count:
        users = workload.pick_users(2 * (count - len(turns)))
        turns += [
            Turn(at == 0, pair, workload.next_query(), workload.next_query())
            for at, pair in enumerate(zip(users[::2], users[1::2], strict=False))
        ]
    return turns


def _open_anew(run: Run) -> None:
    """Open all stores anew; they search where nothing is, so that only the user's part is cold."""
    for contestant in run.durable:
        contestant.close()
        contestant.open()
    query = run.workload.next_query()
    for contestant in run.contestants:
        Question(query, run.workload.sizes.users).ask(contestant.store)


def list_newest(run: Run) -> None:
    """List the newest memories, of a user and of all."""
    for measure in (NEWEST, NEWEST_OF_ALL):
        for memory, contestant in run.turns(measure, [run.workload.pick() for _ in range(run.repeats)]):
            scope = memory.namespace if measure == NEWEST else ()
            run.timed(measure, contestant, partial(contestant.store.search, scope, limit=LIMIT))


def search_everything(run: Run) -> None:
    """Search over everything, warm, when the codes of all vectors are made."""
    for contestant in run.contestants:
        Question(run.workload.next_query()).ask(contestant.store)
        wait_for_codes(contestant.store)
    ask_everything(run, WIDE, LIMIT)


def measure_loss(run: Run, base: Contestant) -> None:
    """Compare the candidates of a hybrid search over everything with a ranking of all by the one formula."""
    store: Any = base.store
    index = store._calls._wide._index  # noqa: SLF001  no call ranks everything by itself
    if index is None:
        return  # so few texts are all ranked
    shares = []
    for _ in run.shown(LOSS, range(run.wide_repeats), run.wide_repeats):
        text = run.workload.next_query().text
        vector = prepare("cosine", np.array(run.workload.lookup.embed_query(text), np.float32))
        query = Ranked("hybrid", vector, to_query_terms(text), 0)
        best = index.rank(query, None).scores[LIMIT - 1]
        shares.append(float((index.propose(query, None, FIRST).scores[:LIMIT] >= best).mean()))
    run.values.add(LOSS, base.name, float(np.mean(shares)))


def put(run: Run, *, wide: bool) -> None:
    """Put one by one, then in batches; search over everything right after a batch where that is wanted."""
    own = [contestant for contestant in run.contestants if contestant.kind != RANKED]
    for memory, contestant in run.turns(PUT, [run.workload.next_spare() for _ in range(run.repeats)], own):
        run.timed(PUT, contestant, partial(contestant.put, memory))
        contestant.take_down(memory)
    count = max(1, min(_BATCHES, run.workload.sizes.items // (_GROWN * BATCH)))
    batches = [[[run.workload.next_spare() for _ in range(BATCH)] for _ in range(2)] for _ in range(count)]
    turns = list(zip(batches, to_questions(run, count, LIMIT), strict=True))
    for (batch, question), contestant in run.turns(PUTS, turns, run.contestants if wide else own):
        memories = batch[contestant.kind == RANKED]  # rankings that share a store put different ones
        ops = [PutOp(memory.namespace, memory.key, memory.value) for memory in memories]
        run.timed(PUTS, contestant, partial(contestant.store.batch, ops))
        contestant.take_down(*memories)
        if wide:
            run.ask(AFTER, contestant, question)
