"""Entities that a challenger fails, and how their calls are counted."""
