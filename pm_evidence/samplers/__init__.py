"""The loops over stages (weigh, resample, move) that leave a record of the run."""
