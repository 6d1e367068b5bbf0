"""Names of the groups, dimensions and attributes of a stored run.

Writers and readers share these names, so that a file written today can be read by
whoever knows this page. ``SCHEMA_VERSION`` rises when a name changes its meaning.
"""

__all__ = [
    "ANNEALING",
    "BETA_POINT",
    "BRIDGE",
    "CHAIN",
    "CONSTANT_DATA",
    "DIRECTION",
    "DRAW",
    "ENERGY_END",
    "ESTIMATOR",
    "EVIDENCE_GROUPS",
    "FINGERPRINT",
    "FORWARD",
    "INFERENCE_LIBRARY",
    "ISLAND",
    "KERNEL_PREFIX",
    "LOG_EVIDENCE",
    "METHOD",
    "NATS",
    "OBSERVED_DATA",
    "ORIGIN",
    "POSTERIOR",
    "RANDOM_SEED",
    "RECOMMENDED",
    "REVERSE",
    "SAMPLE_DIMS",
    "SAMPLE_STATS",
    "SCHEMA",
    "SCHEMA_VERSION",
    "STAGE",
    "WORK",
]

SCHEMA_VERSION = "1"
INFERENCE_LIBRARY = "pm_evidence"

# Groups of ArviZ's own schema.
POSTERIOR = "posterior"
SAMPLE_STATS = "sample_stats"
OBSERVED_DATA = "observed_data"
CONSTANT_DATA = "constant_data"

# Groups of this package.
LOG_EVIDENCE = "log_evidence"
WORK = "work"
ANNEALING = "annealing"
EVIDENCE_GROUPS = (LOG_EVIDENCE, WORK, ANNEALING)

# Dimensions.
CHAIN = "chain"
DRAW = "draw"
SAMPLE_DIMS = (CHAIN, DRAW)
ESTIMATOR = "estimator"
STAGE = "stage"
BETA_POINT = "beta_point"
DIRECTION = "direction"

# Coordinates of ``direction``, and prefixes of the dimensions and variables of ``work``:
# ``forward_path``, ``forward_block``, ``forward_path_block``, ``forward_relative_variance``, ...
FORWARD = "forward"
# work from a fitted density to the target: at draws of the fitted density, and of the target
BRIDGE = ("bridge_forward", "bridge_reverse")
REVERSE = "reverse"
# islands whose draws reverse paths start from, and the group of draws that each path started from
ISLAND = "island"
ORIGIN = "reverse_path_origin"

# Mean energy of the populations at the end of the path, where blocks are populations.
ENERGY_END = "energy_end"
# Prefix of the kernel's settings in ``annealing``, which keeps them apart from the diagnostics.
KERNEL_PREFIX = "kernel_"

# Attributes of ``log_evidence``.
SCHEMA = "schema_version"
RECOMMENDED = "recommended"
METHOD = "method"
RANDOM_SEED = "random_seed"
FINGERPRINT = "fingerprint"

NATS = "nats"
