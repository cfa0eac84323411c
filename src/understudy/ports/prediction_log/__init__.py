"""The prediction log: rows on their way in, reports, months, the archive, and the erasure of an entity."""
