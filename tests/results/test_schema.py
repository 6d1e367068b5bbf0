"""Names of stored runs: what is written uses them, and each stands for one thing."""

from pm_evidence.core.records import Role
from pm_evidence.results import schema
from tests.results.test_datatree import make_tree

NAMES = {name: getattr(schema, name) for name in schema.__all__}
TEXTS = {name: value for name, value in NAMES.items() if isinstance(value, str)}


def test_every_group_dimension_and_attribute_that_is_written_has_its_name_here():
    dt = make_tree()
    assert set(dt.children) <= set(TEXTS.values())
    assert set(dt[schema.LOG_EVIDENCE].attrs) >= {
        schema.SCHEMA,
        schema.RECOMMENDED,
        schema.METHOD,
        schema.RANDOM_SEED,
        schema.FINGERPRINT,
    }
    stages = dt[schema.ANNEALING].to_dataset()
    blocks = {f"{direction}_block" for direction in (Role.FORWARD, Role.REVERSE)}
    assert set(stages.dims) == {schema.STAGE, schema.BETA_POINT, schema.DIRECTION} | blocks
    assert set(dt[schema.LOG_EVIDENCE].to_dataset().dims) == {schema.ESTIMATOR}
    assert dt[schema.POSTERIOR].to_dataset()["mu"].dims == schema.SAMPLE_DIMS


def test_no_two_names_are_the_same_text():
    """A variable would overwrite another one, or a group a dimension."""
    assert len(set(TEXTS.values())) == len(TEXTS)
    assert schema.EVIDENCE_GROUPS == (schema.LOG_EVIDENCE, schema.WORK, schema.ANNEALING)
    assert schema.SAMPLE_DIMS == (schema.CHAIN, schema.DRAW)


def test_old_files_say_the_names_that_they_were_written_with():
    """A name that changes makes files of earlier versions unreadable: raise the version with it."""
    assert schema.SCHEMA_VERSION == "5"
    assert (schema.SCHEMA, schema.RECOMMENDED, Role.FORWARD, Role.REVERSE, schema.ORIGIN) == (
        "schema_version",
        "recommended",
        "forward",
        "reverse",
        "reverse_path_origin",
    )
    assert (
        schema.TEMPERED,
        schema.TEMPERED_STATE,
        schema.TEMPERED_CHAIN,
        schema.TEMPERED_BLOCK,
    ) == ("tempered", "tempered_state", "tempered_chain", "tempered_block")
