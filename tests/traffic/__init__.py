"""Rows, calls and clusters that tests log, spool or judge."""
