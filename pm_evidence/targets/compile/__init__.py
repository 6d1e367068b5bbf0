"""Compilation of graphs to machine code that kernels call by address."""
