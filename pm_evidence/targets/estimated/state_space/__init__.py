"""State-space models, estimated by particle filters."""
