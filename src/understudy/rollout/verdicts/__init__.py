"""Verdicts as events: what is stored with them, what operators were told, and a stored one judged again."""
