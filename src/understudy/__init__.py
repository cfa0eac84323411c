"""Understudy: the service between product code and its machine-learning models."""

__version__ = "0.1.0"
