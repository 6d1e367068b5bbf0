"""Contracts, records, random streams, numerics and errors: what every other layer may use."""
