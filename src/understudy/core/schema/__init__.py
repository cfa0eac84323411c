"""What a model takes and gives: features, tensors, input and output schemas, and how they are compiled and compared."""
