"""Understudy: the service between product code and its machine-learning models."""

__version__ = "0.1.0"
DISTRIBUTION = "understudy-serving"
"""What is installed: the name ``understudy`` on the public index is another project's."""
