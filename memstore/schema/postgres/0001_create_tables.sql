-- The number of the last writing transaction. What one writes has the ids from its number times 2^24 on, so that no id is
-- ever used twice and nobody waits for another to get one. Who writes in a namespace has locked its row first: its ids
-- stand in the order of commits.
CREATE SEQUENCE @clock;

-- The tokens of the last writing transactions: by its own one, a transaction whose connection was lost in its COMMIT is known
-- to have been applied. (The server's numbers of transactions come again after a crash.)
CREATE TABLE @commits (
    number bigint PRIMARY KEY,
    token text NOT NULL
);

-- `index_id` names the index settings that every stored vector obeys.
CREATE TABLE @state (
    id integer PRIMARY KEY CHECK (id = 1),
    index_id bigint NOT NULL
);

INSERT INTO @state (id, index_id) VALUES (1, 0);

-- How the texts are embedded: model, dims, metric and fields, as JSON. The row with the largest id is in force.
CREATE TABLE @index (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    settings text NOT NULL
);

-- A path is each label's UTF-8 followed by NUL: byte order is tuple order, and a prefix is a range; its digest is BLAKE2b in
-- 16 bytes. `version` moves with every transaction that writes in the namespace, and leaves two random bytes in `marks`, the
-- newest first: a database that was set back and written on to has the same versions again, but not the same marks.
-- `texts` counts its texts.
CREATE TABLE @namespaces (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    path bytea NOT NULL,
    path_digest bytea NOT NULL,
    version bigint NOT NULL,
    texts bigint NOT NULL,
    marks bytea NOT NULL
);

CREATE UNIQUE INDEX memstore_namespaces_digest ON @namespaces (path_digest);

-- an entry of a btree ends at 2,704 bytes, a path does not
CREATE INDEX memstore_namespaces_path ON @namespaces (substring(path, 1, 1024));

-- Every put gives its item a new id. Times are microseconds since 1970 in UTC, a ttl is in minutes; `fields` is the put's own
-- choice of paths as a JSON list, NULL where it made none. The digest of a key is BLAKE2b in 16 bytes.
CREATE TABLE @items (
    id bigint PRIMARY KEY,
    namespace_id bigint NOT NULL,
    key text NOT NULL,
    key_digest bytea NOT NULL,
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL,
    ttl double precision,
    expires_at bigint,
    fields text,
    value json NOT NULL
);

CREATE UNIQUE INDEX memstore_items_key ON @items (namespace_id, key_digest);

CREATE INDEX memstore_items_newest ON @items (updated_at, id);

CREATE INDEX memstore_items_newest_in ON @items (namespace_id, updated_at, id);

CREATE INDEX memstore_items_expiry ON @items (expires_at) WHERE expires_at IS NOT NULL;

-- The indexed texts of an item: the path that gave each, the digest of its words (BLAKE2b in 16 bytes), and its terms, ascending
-- as unsigned numbers; NULL where the index settings name no analyser. Their vectors stand in memstore_vectors, which is made
-- with the first index that has any, of the same key and with a column of pgvector's: few pages hold the terms of many texts.
CREATE TABLE @texts (
    namespace_id bigint NOT NULL,
    item_id bigint NOT NULL,
    place integer NOT NULL,
    field text NOT NULL,
    digest bytea NOT NULL,
    terms integer[],
    PRIMARY KEY (namespace_id, item_id, place)
);
