-- The terms of an item's n texts, for search by words: n numbers that say how many terms each text has, then all of them, each
-- text's ascending; little-endian uint32. NULL where nothing is indexed, or where the index settings name no analyser.
ALTER TABLE memstore_items ADD COLUMN terms BLOB;

-- A random mark of each of the last writing transactions, four hexadecimal digits, the newest last: by them a store knows
-- whether the database is still the one it has seen, or an older copy that was put in its place and written on to.
ALTER TABLE memstore_clock ADD COLUMN marks TEXT NOT NULL DEFAULT '';
