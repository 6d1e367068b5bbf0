"""Names of the groups, dimensions and attributes of a stored run.

Writers and readers share these names, so this module documents the format of files.
``SCHEMA_VERSION`` is raised when names are added or change their meaning.
"""

from pm_evidence.core.records import Role

# 2 adds the trace of each block and the origin of each posterior draw; 3 adds ``path_ess`` and the
# facts of the schedule; 4 adds tempered chains; 5 adds ``particles``. Names of earlier versions are
# unchanged.
SCHEMA_VERSION = "5"
FIRST_WITH_RECORDS = 2
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
ISLAND_STAGE = "island_stage"  # islands that reverse paths start from have their own stages
BETA_POINT = "beta_point"
DIRECTION = "direction"

# The roles of blocks are coordinates of ``direction``, and prefixes of the dimensions and variables
# of ``work``: ``forward_path``, ``forward_block``, ``forward_path_block``,
# ``forward_relative_variance``, ...
DIRECTIONS = (Role.FORWARD, Role.REVERSE)
# work from a fitted density to the target: at draws of the fitted density, and of the target
BRIDGE = ("bridge_forward", "bridge_reverse")
# prefix of the chains that move between temperatures, and their dimensions
TEMPERED = "tempered"
TEMPERED_STATE, TEMPERED_CHAIN = "tempered_state", "tempered_chain"
TEMPERED_BLOCK = "tempered_block"
# the group of draws of islands that each reverse path started from
ORIGIN = "reverse_path_origin"

# Diagnostics of every stage, averaged over blocks (``energy_mean``) and of each block
# (``forward_energy_mean``, ...), with their units.
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
FACTS = "facts"  # names of those attributes that are the ``info`` of the record

# Attribute of ``posterior`` and variable of ``sample_stats``: the kind of source of the draws, and
# the source of each draw. Draws of different origin are independent.
DRAWN_FROM = "drawn_from"
DRAW_ORIGIN = "origin"

NATS = "nats"


def stage_of(role: Role) -> str:
    """Return the dimension of the stages of blocks."""
    return ISLAND_STAGE if role == Role.ISLAND else STAGE
