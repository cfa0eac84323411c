"""Loading and unloading on a model server: its repository's folders and its calls."""
