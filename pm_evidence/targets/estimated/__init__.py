"""Models whose likelihood is replaced by an unbiased estimate."""
