"""Redis: the shared prediction cache and online features."""
