"""Connections to Postgres: how they are made, what they notice, and how long reads are held apart."""
