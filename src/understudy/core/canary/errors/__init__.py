"""Errors of a challenger: more entities that see one, or nearly all of them from the first calls on."""
