"""Slices: categories and values of features for which a challenger does worse, and how they are added up."""
