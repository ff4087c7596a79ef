-- The terms of an item's n texts, for search by words: n numbers that say how many terms each text has, then all of them, each
-- text's ascending; little-endian uint32. NULL where nothing is indexed, or where the index settings name no analyser.
ALTER TABLE memstore_items ADD COLUMN terms BLOB;
