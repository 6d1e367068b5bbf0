"""What is annealed: a reference that can be sampled and an unnormalised target density."""

from pm_evidence.targets.compile.numba_graph import provide_folder

# before the first import of modules that PyTensor keeps on disk
provide_folder()
