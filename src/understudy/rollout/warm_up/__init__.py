"""Warm-up, before the first share: example calls to a challenger, and its scores beside the champion's."""
