"""Reads the log from the lake's table: reports by DuckDB over rows of one snapshot, in bounded memory and time."""
