"""Canary analysis: limits, the table of checks, messages and decision; a package for what each check compares."""
