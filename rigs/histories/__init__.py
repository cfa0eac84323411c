"""Histories against a model: random operations on real processes, recorded with times and checked afterwards."""
