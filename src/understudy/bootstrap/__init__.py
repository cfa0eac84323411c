"""The composition roots, one for each process and one for commands: Settings in, open parts out, closed in reverse."""
