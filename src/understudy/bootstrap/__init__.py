"""The composition roots, one for each process: Settings in, opened parts out, closed in reverse order."""
