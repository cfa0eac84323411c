"""What a process asks behind it, opened as settings name it: model servers, the feature store, the shared cache."""
