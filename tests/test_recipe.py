"""The conda recipe is that of the package, and keeps the rules of conda-smithy's linter."""

import re
import tomllib
from pathlib import Path

import jinja2
import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
ORDER = ["package", "source", "build", "requirements", "test", "about", "extra"]


def recipe_text():
    return (ROOT / "recipe" / "meta.yaml").read_text(encoding="utf-8")


def rendered(text):
    """Return the recipe as texts, as conda-build reads it."""
    return yaml.load(jinja2.Template(text).render(PYTHON="python"), yaml.BaseLoader)


def project():
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def problems(text):
    """Return what breaks a rule of conda_smithy/linter/lints.py or hints.py."""
    recipe = rendered(text)
    build, about, tests = recipe["build"], recipe["about"], recipe["test"]
    host, run = recipe["requirements"]["host"], recipe["requirements"]["run"]
    minimum = re.search(r'set python_min = "(.*)"', text)[1]
    bad_set = [
        line
        for line in re.findall(r".*\{%.*", text)
        if not re.fullmatch(r"\{% set \S+ = \S+ %\}", line)
    ]
    checks = {
        "sections, in this order": list(recipe) == ORDER,
        "a valid name": re.fullmatch(r"[a-z0-9_\-.]+", recipe["package"]["name"]),
        "a version": re.fullmatch(r"\d+(\.\d+)+", recipe["package"]["version"]),
        "a source with a hash": re.fullmatch(r"[0-9a-f]{64}", recipe["source"]["sha256"]),
        "no wheel as source": recipe["source"]["url"].endswith(".tar.gz"),
        "a build number": build.get("number") is not None,
        "noarch": build.get("noarch") == "python",
        "pip without dependencies": "-m pip install . -vv --no-deps" in build["script"],
        "build, host, run": list(recipe["requirements"]) == ["host", "run"],
        "a build backend beside pip": {"pip", "hatchling"} <= {r.split()[0] for r in host},
        "a space before each pin": all(re.fullmatch(r"[\w-]+( [<>=]?\S+)?", r) for r in host + run),
        "python_min": f"python {minimum}" in host
        and f"python >={minimum}" in run
        and f"python {minimum}" in tests["requires"],
        "tests": tests.get("imports") and "pip check" in tests["commands"],
        "home, license, summary": all(about.get(k) for k in ("home", "license", "summary")),
        "an SPDX license": about["license"] == "Apache-2.0",
        "a license file": (ROOT / about["license_file"]).is_file(),
        "a list of maintainers": isinstance(recipe["extra"]["recipe-maintainers"], list),
        "tidy definitions": not bad_set,
        "one space in references": not re.search(r"\{\{(\S|\s\s)|(\S|\s\s)\}\}", text),
        "no selectors, as noarch": not re.search(r"#\s*\[", text),
        "quoted versions": not re.search(r"(?m)^\s*- \d+\.\d+$", text),
        "one newline at the end": text.endswith("\n") and not text.endswith("\n\n"),
    }
    return [rule for rule, kept in checks.items() if not kept]


def test_the_recipe_keeps_the_rules():
    assert problems(recipe_text()) == []


@pytest.mark.parametrize(
    ("old", "new", "rule"),
    [
        ("- scipy >=1.14", "- scipy>=1.14", "a space before each pin"),
        ("{% set version = ", "{%set version=", "tidy definitions"),
        ("{{ name }}", "{{name}}", "one space in references"),
        ("  number: 0\n", "", "a build number"),
        ("- pip check", "- pip list", "tests"),
        ("- numba >=0.61", "- numba >=0.61  # [unix]", "no selectors, as noarch"),
    ],
)
def test_a_broken_rule_is_noticed(old, new, rule):
    assert problems(recipe_text().replace(old, new, 1)) == [rule]


def test_the_recipe_is_that_of_the_package():
    recipe, wanted = rendered(recipe_text()), project()
    package, build = wanted["project"], wanted["build-system"]["requires"]
    assert recipe["package"] == {"name": package["name"], "version": package["version"]}
    assert recipe["source"]["url"].endswith(f"pm_evidence-{package['version']}.tar.gz")
    assert recipe["about"]["license"] == package["license"]
    assert recipe["about"]["summary"] == package["description"]
    python = f"python{package['requires-python']}"
    run = {r.replace(" ", "") for r in recipe["requirements"]["run"]}
    assert run == {python, *package["dependencies"]}
    host = {r.replace(" ", "") for r in recipe["requirements"]["host"]}
    assert host == {python.replace(">=", ""), "pip", *build}
