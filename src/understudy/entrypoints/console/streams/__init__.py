"""Streams of server-sent events: what is watched, for whom, and what an open page is told."""
