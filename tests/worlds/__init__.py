"""What tests build a story in: the parts of the product that it needs, on a real database or on twins."""
