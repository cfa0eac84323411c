"""The benchmark: processor time of a predict call beside servers that do less, measured in the same run."""
