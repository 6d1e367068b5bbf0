"""Lattices of spins and of colours."""

from pm_evidence.families.lattice.target import Ising, Potts

__all__ = ["Ising", "Potts"]
