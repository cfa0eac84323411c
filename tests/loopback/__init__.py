"""Servers on loopback that stand for those of others, and what they need."""
