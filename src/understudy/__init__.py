"""Understudy: the service between product code and its machine-learning models."""
