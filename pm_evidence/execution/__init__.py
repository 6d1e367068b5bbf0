"""Independent blocks over threads or an executor, and the display of their progress."""
