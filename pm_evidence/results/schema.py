"""Names of the groups, dimensions and attributes of a stored run.

Writers and readers share these names, so this module documents the format of files.
``SCHEMA_VERSION`` is raised when names are added or change their meaning.
"""

from pm_evidence.core.records import Role

SCHEMA_VERSION = "6"
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
RECORD = "record"  # all of the run but its draws; see `core.codec`
TREE = "tree"  # its variable of text
EVIDENCE_GROUPS = (LOG_EVIDENCE, WORK, ANNEALING, RECORD)

# Dimensions.
CHAIN = "chain"
DRAW = "draw"
SAMPLE_DIMS = (CHAIN, DRAW)
ESTIMATOR = "estimator"
STAGE = "stage"
BETA_POINT = "beta_point"
DIRECTION = "direction"

# The roles of blocks are coordinates of ``direction``, and prefixes of the dimensions and variables
# of ``work``: ``forward_path``, ``forward_block``, ``forward_path_block``, ...
DIRECTIONS = (Role.FORWARD, Role.REVERSE)
# the group of draws of islands that each reverse path started from
ORIGIN = "reverse_path_origin"

# Diagnostics of every stage, averaged over blocks, with their units.
TRACE_UNITS = {
    "energy_mean": "nats",
    "energy_var": "nats^2",
    "ess": "share",
    "acceptance": "share",
    "path_ess": "share",
    "particles": "particles",
}
# Diagnostics that are left out where no block has them.
PATH_ESS, PARTICLES = "path_ess", "particles"
OPTIONAL_TRACES = (PATH_ESS, PARTICLES)
# Particles of each stage for which the variance of log Z would be least, beside ``particles``, and
# attributes of that variable: the variance with the particles that there were, and the least one.
PARTICLES_OPTIMAL = "particles_optimal"
VARIANCE_SPENT, VARIANCE_LEAST = "variance", "least_variance"
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
SECONDS = ("tuning_time", "sampling_time")  # facts that the group ``record`` leaves out

# Attribute of ``posterior`` and variable of ``sample_stats``: the kind of source of the draws, and
# the source of each draw. Draws of different origin are independent.
DRAWN_FROM = "drawn_from"
DRAW_ORIGIN = "origin"

NATS = "nats"
