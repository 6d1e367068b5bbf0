"""Samplers: they loop over stages (weigh, resample, move) and return a record of the run."""
