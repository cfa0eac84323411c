"""What a call asks on its way: model servers, stored features, and the cache of predictions."""
