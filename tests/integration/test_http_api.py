"""The API keeps what its document says: whatever is sent, every answer is a documented one, and none is a mistake."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from integration.console_samples import known_names
from integration.console_server import ConsoleServer, Filled, fill, record_runs
from lamina.server.http import openapi
from lamina.server.http.ops import all_operations

CAMPAIGN = int(os.environ.get("LAMINA_CAMPAIGN") or 0)
EXAMPLES = 300 * CAMPAIGN if CAMPAIGN else 30


def documented_code(context: Any, response: Any, case: Any) -> None:
    """The code of an error is among those that the operation is documented with."""
    if response.status_code != 200:
        described = case.operation.definition.raw["responses"][str(response.status_code)]
        assert response.json()["error"]["code"] in described["description"].split(", "), response.content


CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    documented_code,
]
OPERATIONS = sorted(all_operations().values(), key=lambda each: each.changes)


class Api:
    """A server, and its document with names that are there among all that could be asked for."""

    def __init__(self, server: ConsoleServer, filled: Filled) -> None:
        self.server, self.filled = server, filled
        document = server.get("/api/v1/openapi.json").json()
        assert document == _plain(openapi.document(all_operations().values()))
        self.schema = schemathesis.openapi.from_dict(_with_names(document, known_names(filled)))
        self.schema.config.update(base_url=f"{server.url}/api/v1")
        self.session = requests.Session()


def _plain(document: dict[str, Any]) -> Any:
    import msgspec

    return msgspec.json.decode(msgspec.json.encode(document))


def _with_names(document: dict[str, Any], names: dict[str, list[str]]) -> dict[str, Any]:
    """Else nearly all that is drawn would be names that nobody has."""
    for operations in document["paths"].values():
        for described in operations.values():
            bodies = described.get("requestBody", {}).get("content", {}).get("application/json", {})
            fields = [(each["name"], each) for each in described["parameters"]]
            properties = bodies.get("schema", {}).get("properties", {})
            for name, holder in [*fields, *((name, {"schema": field}) for name, field in properties.items())]:
                if name in names:
                    drawn = {"anyOf": [{"enum": names[name]}, holder["schema"]]}
                    if name in properties:
                        properties[name] = drawn
                    else:
                        holder["schema"] = drawn
    return document


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with ConsoleServer(tmp_path_factory.mktemp("api") / "data") as server:
        with server.remote() as lm:
            filled = fill(lm)
        record_runs(server.folder)
        made = Api(server, filled)
        yield made
        made.session.close()
        assert "Traceback" not in server.complaints()


@pytest.mark.parametrize("name", [each.name for each in OPERATIONS])
def test_no_request_makes_it_break_or_say_what_is_not_documented(api: Api, name: str) -> None:
    operation = all_operations()[name]
    described = api.schema[_documented(operation.path)][operation.method]

    @settings(
        max_examples=EXAMPLES if len(operation.asks.__struct_fields__) > 1 else 5,
        deadline=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=described.as_strategy())
    def holds(case: schemathesis.Case[Any]) -> None:
        case.call_and_validate(session=api.session, checks=CHECKS, timeout=60)

    holds()


def _documented(path: str) -> str:
    return path.replace(":path}", "}")
