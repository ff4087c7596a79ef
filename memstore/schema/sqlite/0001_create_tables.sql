-- What has been written, in one row: `clock` counts writing transactions; `last_id` is the last id given to an item or a
-- text, none of which is ever used twice; `floor` is the clock up to which removals have been forgotten; `index_id` names
-- the index settings that every stored vector obeys.
CREATE TABLE memstore_clock (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    clock INTEGER NOT NULL,
    last_id INTEGER NOT NULL,
    floor INTEGER NOT NULL,
    index_id INTEGER NOT NULL
) STRICT;

INSERT INTO memstore_clock (id, clock, last_id, floor, index_id) VALUES (1, 0, 0, 0, 0);

-- How the texts are embedded: model, dims, metric and fields, as JSON. The row with the largest id is in force.
CREATE TABLE memstore_index (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    settings TEXT NOT NULL
) STRICT;

-- A path is each label's UTF-8 followed by NUL: byte order is tuple order, and a prefix is a range. `version` moves with
-- every transaction that writes in the namespace; (id, version) names its contents for good. `texts` counts its texts.
CREATE TABLE memstore_namespaces (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    path BLOB NOT NULL UNIQUE,
    version INTEGER NOT NULL,
    texts INTEGER NOT NULL
) STRICT;

-- An item and all that is indexed of it, in one row: a put touches one place of the table and one of its index. Every
-- put gives its item a new id, so that ids stand in writing order. Times are microseconds since 1970 in UTC, a ttl is in
-- minutes; `fields` is the put's own choice of paths as a JSON list, NULL where it made none.
-- Its n texts have the ids from `text_id` on: `texts` is a JSON list of the paths that gave them, `digests` n times BLAKE2b
-- of a text in 16 bytes, `vectors` n vectors of little-endian float32. All four are NULL where nothing is indexed.
CREATE TABLE memstore_items (
    id INTEGER PRIMARY KEY,
    namespace_id INTEGER NOT NULL,
    key TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    ttl REAL,
    expires_at INTEGER,
    fields TEXT,
    value TEXT NOT NULL,
    text_id INTEGER,
    texts TEXT,
    digests BLOB,
    vectors BLOB
) STRICT;

CREATE UNIQUE INDEX memstore_items_key ON memstore_items (namespace_id, key);

CREATE INDEX memstore_items_newest ON memstore_items (updated_at);

CREATE INDEX memstore_items_newest_in ON memstore_items (namespace_id, updated_at);

CREATE INDEX memstore_items_expiry ON memstore_items (expires_at) WHERE expires_at IS NOT NULL;

-- Texts that are gone, with the clock of their removal: how an index beside the database learns of them.
CREATE TABLE memstore_removals (
    clock INTEGER NOT NULL,
    text_id INTEGER NOT NULL,
    texts INTEGER NOT NULL,
    PRIMARY KEY (clock, text_id)
) STRICT, WITHOUT ROWID;
