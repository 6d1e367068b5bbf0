"""Contracts, records, random streams, numerics and errors: what every other layer may use."""

from pm_evidence.core import caches

# before the first function that numba keeps on disk
caches.register()
