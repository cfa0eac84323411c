"""What registers versions: with their artifacts pinned, by hand or from a source."""
