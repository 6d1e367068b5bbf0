"""Independent blocks over an executor, with checkpoints and progress."""
