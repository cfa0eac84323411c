"""Kills of agents, model servers, leaders and Postgres while a champion is exchanged under load."""
