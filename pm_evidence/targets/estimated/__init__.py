"""Models whose likelihood is estimated without bias, and not evaluated."""
