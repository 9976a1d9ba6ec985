"""API keys: who gets in, with which scope, how often, and what is noted of it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from typer.testing import CliRunner

from service.app import create_app
from service.cli import app as command_line
from service.db.session import Database
from service.metrics import Metrics
from service.middleware.access import Access
from service.middleware.request_log import RequestLog
from service.security import Scope, create_key, needed_scope
from service.settings import Settings
from tests.service.conftest import KINDS, new_database_url, quick_settings
from tests.service.fake_engine import fake_engine
from tests.service.test_http import problem_of


def exposed_settings(url: str, **changes: Any) -> Settings:
    """Settings of a server that other machines can reach."""
    return quick_settings(url).model_copy(update={"host": "0.0.0.0", **changes})


@pytest.fixture(scope="module", params=KINDS)
def exposed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """A running application that other machines could reach; one for all tests of a kind of database."""
    app = create_app(exposed_settings(new_database_url(request, tmp_path_factory)), fake_engine())
    with TestClient(app, raise_server_exceptions=False) as client:
        yield client


def gate(database: Database, settings: Settings) -> TestClient:
    """The access middleware alone, before an application that answers everything."""

    def answer(_request: Request) -> PlainTextResponse:
        return PlainTextResponse("in")

    app = Starlette(routes=[Route("/{path:path}", answer, methods=["GET", "POST"])])
    app.state.database = database
    app.add_middleware(Access, state=app.state, settings=settings)
    app.add_middleware(RequestLog, metrics=Metrics())
    return TestClient(app)


def key(client: TestClient, scope: Scope, lifetime_s: float | None = None) -> dict[str, str]:
    """Headers with a new key."""
    return new_key(client.app.state.database, scope, lifetime_s)  # type: ignore[attr-defined]


def new_key(database: Database, scope: Scope, lifetime_s: float | None = None) -> dict[str, str]:
    return {"Authorization": f"Bearer {create_key(database, 'test', scope, lifetime_s).token}"}


class TestWithoutAKey:
    def test_nothing_beyond_livez_answers(self, exposed: TestClient) -> None:
        assert exposed.get("/livez").status_code == 200
        for path, operations in exposed.app.openapi()["paths"].items():  # type: ignore[attr-defined]
            for method in operations:
                if path != "/livez":
                    answer = exposed.request(method, path.replace("{", "").replace("}", ""))
                    problem_of(answer, 401)
                    assert "Bearer" in answer.headers["WWW-Authenticate"]

    @pytest.mark.parametrize("path", ["/docs", "/openapi.json", "/nothing", "/livez/", "//livez"])
    def test_nor_do_pages_or_unknown_paths(self, exposed: TestClient, path: str) -> None:
        assert exposed.get(path).status_code == 401

    @pytest.mark.parametrize(
        "header", ["", "Bearer", "Bearer x", "Bearer cf_", "Bearer cf_a_b", "Basic !", "Basic OmNmX2FfYg==", "Digest x"]
    )
    def test_a_malformed_or_unknown_key_is_none(self, exposed: TestClient, header: str) -> None:
        problem_of(exposed.get("/v1/studies", headers={"Authorization": header}), 401)

    def test_a_large_body_is_refused_unread(self, exposed: TestClient) -> None:
        problem_of(exposed.post("/v1/studies", content=b"x" * (17 * 1024**2)), 401)


class TestScopes:
    def test_a_read_only_key_reads_and_cannot_write(self, exposed: TestClient) -> None:
        headers = key(exposed, "read")
        assert exposed.get("/v1/studies", headers=headers).status_code == 200
        problem = problem_of(exposed.post("/v1/studies", headers=headers, json={"name": "s"}), 403)
        assert problem["detail"] == "this call needs a key with scope 'write', got scope 'read'"
        for path, operations in exposed.app.openapi()["paths"].items():  # type: ignore[attr-defined]
            for method in set(operations) - {"get"}:
                assert exposed.request(method, path, headers=headers).status_code == 403
        assert exposed.get("/v1/studies", headers=headers).json()["items"] == []

    def test_a_writing_key_reads_and_writes_and_sees_no_keys(self, exposed: TestClient) -> None:
        headers = key(exposed, "write")
        assert exposed.post("/v1/studies", headers=headers, json={"name": "s"}).status_code == 202
        assert len(exposed.get("/v1/studies", headers=headers).json()["items"]) == 1
        problem_of(exposed.get("/v1/keys", headers=headers), 403)
        problem_of(exposed.post("/v1/keys", headers=headers, json={"name": "mine", "scope": "admin"}), 403)

    def test_an_admin_makes_a_key_whose_secret_is_shown_once_and_stored_nowhere(self, exposed: TestClient) -> None:
        admin = key(exposed, "admin")
        made = exposed.post("/v1/keys", headers=admin, json={"name": "planner", "scope": "read"})
        assert made.status_code == 201
        assert made.headers["cache-control"] == "no-store"
        secret = made.json()["key"].split("_")[2]
        assert exposed.get("/v1/studies", headers={"Authorization": f"Bearer {made.json()['key']}"}).status_code == 200
        assert secret not in exposed.get("/v1/keys", headers=admin).text
        database: Database = exposed.app.state.database  # type: ignore[attr-defined]
        with database.pool.connect() as connection:
            assert secret not in str(connection.exec_driver_sql("SELECT * FROM api_keys").all())

    def test_a_browser_may_send_the_key_as_a_password(self, exposed: TestClient) -> None:
        token = key(exposed, "read")["Authorization"].removeprefix("Bearer ")
        assert exposed.get("/v1/studies", auth=("anyone", token)).status_code == 200

    @pytest.mark.parametrize(
        ("method", "path", "scope"),
        [
            ("GET", "/v1/studies", "read"),
            ("HEAD", "/metrics", "read"),
            ("POST", "/v1/evaluations", "write"),
            ("DELETE", "/v1/studies/x", "write"),
            ("GET", "/v1/keys", "admin"),
            ("POST", "/v1/keys/a:revoke", "admin"),
            ("GET", "/v1/audit", "admin"),
            ("GET", "/v1/keyserver", "read"),
        ],
    )
    def test_the_scope_follows_from_method_and_path(self, method: str, path: str, scope: str) -> None:
        assert needed_scope(method, path) == scope


class TestTheEndOfAKey:
    def test_a_revoked_key_fails_at_once(self, exposed: TestClient) -> None:
        admin, headers = key(exposed, "admin"), key(exposed, "read")
        assert exposed.get("/v1/studies", headers=headers).status_code == 200
        key_id = headers["Authorization"].split("_")[1]
        revoked = exposed.post(f"/v1/keys/{key_id}:revoke", headers=admin)
        assert revoked.json()["revoked_at"] is not None
        assert (
            problem_of(exposed.get("/v1/studies", headers=headers), 401)["detail"] == f"API key '{key_id}' is revoked"
        )
        again = exposed.post(f"/v1/keys/{key_id}:revoke", headers=admin)
        assert again.json()["revoked_at"] == revoked.json()["revoked_at"]
        problem_of(exposed.post("/v1/keys/none:revoke", headers=admin), 404)

    def test_an_expired_key_fails(self, exposed: TestClient) -> None:
        headers = key(exposed, "read", lifetime_s=0.2)
        assert exposed.get("/v1/studies", headers=headers).status_code == 200
        time.sleep(0.3)
        assert "has expired" in problem_of(exposed.get("/v1/studies", headers=headers), 401)["detail"]

    def test_the_last_use_is_noted(self, exposed: TestClient) -> None:
        admin = key(exposed, "admin")
        row = exposed.get("/v1/keys", headers=admin).json()["items"][0]
        assert row["last_used_at"] >= row["created_at"]


class TestTheAuditLog:
    def test_notes_changes_and_refusals_with_key_and_request(self, exposed: TestClient) -> None:
        admin, reader = key(exposed, "admin"), key(exposed, "read")
        exposed.get("/v1/studies", headers=reader)
        exposed.post("/v1/studies", headers=admin | {"X-Request-ID": "r-1"}, json={"name": "s"})
        exposed.post("/v1/studies", headers=reader | {"X-Request-ID": "r-2"}, json={"name": "s"})
        entries = exposed.get("/v1/audit", headers=admin).json()["items"][:2]
        assert [(e["action"], e["status"], e["request_id"]) for e in entries] == [
            ("POST /v1/studies", 403, "r-2"),
            ("POST /v1/studies", 202, "r-1"),
        ]
        assert entries[0]["key_id"] == reader["Authorization"].split("_")[1]

    def test_comes_in_pages(self, exposed: TestClient) -> None:
        admin = key(exposed, "admin")
        for _ in range(3):
            exposed.post("/v1/studies", headers=admin, json={})
        first = exposed.get("/v1/audit?page_size=2", headers=admin).json()
        rest = exposed.get("/v1/audit", headers=admin, params={"page_token": first["next_page_token"]}).json()
        ids = [entry["id"] for entry in first["items"] + rest["items"]]
        assert ids == sorted(ids, reverse=True)
        assert len(ids) == len(set(ids)) >= 3


class TestRates:
    def test_too_many_requests_of_a_key_wait_and_another_key_does_not(self, database: Database) -> None:
        client = gate(database, exposed_settings("", rate_limit="5/hour"))
        first, second = new_key(database, "read"), new_key(database, "read")
        answers = [client.get("/v1/chips", headers=first) for _ in range(6)]
        assert [answer.status_code for answer in answers] == [200] * 5 + [429]
        problem_of(answers[-1], 429)
        assert 1 <= int(answers[-1].headers["Retry-After"]) <= 3601
        assert client.get("/v1/chips", headers=second).status_code == 200

    def test_guesses_from_one_address_wait_too(self, database: Database) -> None:
        client = gate(database, exposed_settings("", rate_limit="3/hour"))
        codes = [client.get("/v1/chips", headers={"Authorization": "Bearer cf_a_b"}).status_code for _ in range(4)]
        assert codes == [401, 401, 401, 429]

    def test_unfinished_studies_of_a_key_are_limited(
        self, exposed: TestClient, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        state = exposed.app.state  # type: ignore[attr-defined]
        monkeypatch.setattr(state, "settings", state.settings.model_copy(update={"max_unfinished_studies": 2}))
        first, second = key(exposed, "write"), key(exposed, "write")
        document = {"name": "s", "trials": 1000, "chunk_s": 0.5}
        answers = [exposed.post("/v1/studies", headers=first, json=document) for _ in range(3)]
        assert [answer.status_code for answer in answers] == [202, 202, 429]
        assert exposed.post("/v1/studies", headers=second, json={"name": "s"}).status_code == 202
        for answer in answers[:2]:
            exposed.post(f"{answer.headers['Location']}:cancel", headers=first)


class TestBrowsers:
    def test_other_hosts_are_turned_away_where_hosts_are_named(self, database: Database) -> None:
        client = gate(database, quick_settings("").model_copy(update={"allowed_hosts": ["localhost", "[::1]"]}))
        assert client.get("/v1/chips", headers={"Host": "localhost:8080"}).status_code == 200
        assert client.get("/v1/chips", headers={"Host": "[::1]:8080"}).status_code == 200
        problem_of(client.get("/v1/chips", headers={"Host": "rebound.example.org"}), 421)

    def test_pages_of_other_origins_change_nothing(self, database: Database) -> None:
        foreign = {"Origin": "https://example.org", "Sec-Fetch-Site": "cross-site"}
        client = gate(database, quick_settings(""))
        problem_of(client.post("/v1/studies", headers=foreign, json={"name": "s"}), 403)
        assert client.post("/v1/studies", headers={"Sec-Fetch-Site": "same-origin"}).status_code == 200

    def test_no_origin_is_allowed_unless_it_is_configured(self, sqlite_url: str) -> None:
        asked = {"Origin": "https://plan.example.org", "Access-Control-Request-Method": "POST"}
        for origins, allowed in (([], None), (["https://plan.example.org"], "https://plan.example.org")):
            settings = quick_settings(sqlite_url).model_copy(update={"cors_origins": origins})
            answer = TestClient(create_app(settings, fake_engine())).options("/v1/studies", headers=asked)
            assert answer.headers.get("access-control-allow-origin") == allowed


class TestTheCommandLine:
    def run(self, url: str, *arguments: str) -> Any:
        return CliRunner().invoke(command_line, ["keys", *arguments, "--database-url", url])

    def answer(self, url: str, *arguments: str) -> Any:
        """What a command prints last; the application of the other tests logs to the same place."""
        return json.loads(self.run(url, *arguments).stdout.splitlines()[-1])

    def test_makes_lists_and_revokes_keys_that_the_server_knows(self, database: Database, database_url: str) -> None:
        made = self.answer(database_url, "create", "ops", "--scope", "admin", "--expires-in", "90 days", "--json")
        headers = {"Authorization": f"Bearer {made['key']}"}
        client = gate(database, exposed_settings(database_url))
        assert client.get("/v1/keys", headers=headers).status_code == 200
        assert self.run(database_url, "revoke", made["id"]).exit_code == 0
        assert client.get("/v1/keys", headers=headers).status_code == 401
        (row,) = self.answer(database_url, "list", "--json")["items"]
        assert row["id"] == made["id"] and row["revoked_at"] is not None

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            (("create", "x", "--scope", "root"), "scope: Input should be 'read', 'write' or 'admin', got 'root'"),
            (("create", ""), "name: String should have at least 1 character, got ''"),
            (("create", "x", "--expires-in", "90"), "must carry a unit, such as '90 days', got '90'"),
            (("create", "x", "--expires-in", "-3 days"), "lifetime_s: Input should be greater than 0"),
            (("revoke", "none"), "unknown key 'none'"),
        ],
    )
    def test_bad_input_ends_in_one_line(self, tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
        ended = self.run(f"sqlite:///{tmp_path / 'db.sqlite'}", *arguments)
        assert ended.exit_code == 2
        assert ended.stderr.startswith(f"chipfit: {said}")
        assert len(ended.stderr.splitlines()) == 1
