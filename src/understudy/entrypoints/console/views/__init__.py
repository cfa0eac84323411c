"""What each page shows, as values: strings and numbers that templates draw, made from what use cases answered."""
