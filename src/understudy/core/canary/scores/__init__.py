"""Scores of a challenger: whether they have moved, are all the same, or rank calls as the champion's do."""
