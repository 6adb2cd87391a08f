"""The OpenAPI document is true of a running service."""

from __future__ import annotations

import jsonschema_rs
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis.checks import not_a_server_error
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)

from helpers.serving import MINUTE, publish, serving
from helpers.streams import EPOCH
from sketchstream.serve.http import shapes
from sketchstream.serve.http.api import Api
from sketchstream.stream.windows.calendar import iso

DOCUMENT = Api(None, None).document
EXAMPLES = {name: one["examples"] for name, one in DOCUMENT["components"]["schemas"].items() if "examples" in one}
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    negative_data_rejection,
    unsupported_method,
]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    publish(folder / "sealed", minutes=2, partitions=1)
    with serving(folder) as (_, client):
        for _ in range(600):  # answers are there, so that requests are quick
            if client.get("/v1/status").json()["pending"] == 0:
                break
        yield client


@pytest.fixture(scope="module")
def described(site):
    """The document that is served, with names and times that are often there, so that there are answers to check."""
    text = site.get("/openapi.json").json()
    times = [iso(EPOCH + n * MINUTE) for n in range(3)]
    usual = {
        "name": ["minutes", "hours"],
        "from": times[:1],
        "to": times[1:],
        "against_from": times[1:2],
        "against_to": times[2:],
        "metric": ["distinct", "at_least.2", "nothing"],
    }
    for one in text["paths"].values():
        for operation in one.values():
            for parameter in operation.get("parameters", []):
                if parameter["name"] in usual:
                    parameter["schema"] = {"enum": usual[parameter["name"]]}
    return schemathesis.openapi.from_dict(text)


def operations():
    """Path and method of every operation."""
    return [(path, method) for path, one in DOCUMENT["paths"].items() for method in one]


@pytest.mark.statistics
@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
@pytest.mark.parametrize(("path", "method"), operations())
def test_generated_requests_get_what_the_document_says(site, described, path, method, mode):
    operation = described[path][method.upper()]
    seen = set()

    @settings(
        max_examples=15,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(operation.as_strategy(generation_mode=mode))
    def ask(case):
        seen.add(case.call_and_validate(base_url=str(site.base_url), checks=CHECKS).status_code)

    try:
        ask()
    except Unsatisfiable:  # nothing can be wrong with a request without parameters
        assert mode == GenerationMode.NEGATIVE
        assert not operation.query
        assert not operation.body
    else:
        # no sketch here has estimates, closed positions or an overlap: for the last see test_overlap.py
        answered = not path.endswith(("/estimate", "/estimates", "/closed", "/overlap"))
        assert mode == GenerationMode.NEGATIVE or (200 in seen) == answered


def test_every_path_of_the_service_is_in_the_document(site):
    described = {(path, method.upper()) for path, one in DOCUMENT["paths"].items() for method in one}
    served = {
        (route.path, method)
        for route in Api(None, None).routes
        for method in route.methods - {"HEAD"}
        if route.path not in ("/metrics", "/openapi.json")
    }
    assert described == served


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_examples_are_what_their_schemas_say(name):
    validator = jsonschema_rs.validator_for(
        {"$ref": f"#/components/schemas/{name}", "components": DOCUMENT["components"]}
    )
    for example in EXAMPLES[name]:
        validator.validate(example)
        getattr(shapes, name).model_validate(example, strict=True)


def test_every_answer_has_an_example():
    wanted = {"Problem"}
    for one in DOCUMENT["paths"].values():
        for operation in one.values():
            schema = operation["responses"]["200"].get("content", {}).get("application/json", {}).get("schema", {})
            wanted |= {part["$ref"].rpartition("/")[2] for part in schema.get("anyOf", [schema]) if "$ref" in part}
    assert len(wanted) > 12
    assert wanted <= EXAMPLES.keys()
