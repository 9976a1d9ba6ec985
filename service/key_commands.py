"""`chipfit keys`: API keys made, listed and revoked on the database itself, for whoever runs the server."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from service.db.session import Database

app = typer.Typer(no_args_is_help=True, help="Make, list and revoke API keys.", pretty_exceptions_enable=False)

DatabaseUrl = Annotated[
    str | None, typer.Option(help="Database of the servers; the settings' by default.", show_default=False)
]
JsonFlag = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]


@app.command()
def create(
    name: Annotated[str, typer.Argument(help="Who or what the key is for.")],
    scope: Annotated[str, typer.Option(help="read, write (and read) or admin (everything).")] = "read",
    expires_in: Annotated[str | None, typer.Option(help="Time after which it expires, such as '90 days'.")] = None,
    database_url: DatabaseUrl = None,
    as_json: JsonFlag = False,
) -> None:
    """Make a key and print it; this is the only time it is shown."""
    with _database(database_url) as database:
        from explorer.quantities import parse_quantity
        from service.schemas.keys import KeyCreate, KeySecretRead, key_fields
        from service.security import create_key

        lifetime_s = None if expires_in is None else parse_quantity(expires_in, "s", "90 days")
        asked = KeyCreate.model_validate({"name": name, "scope": scope, "lifetime_s": lifetime_s})
        made = create_key(database, asked.name, asked.scope, asked.lifetime_s)
        _audit(database, f"keys create {made.row.id}")
        document = KeySecretRead(**key_fields(made.row), key=made.token).model_dump(mode="json")
    _print(document) if as_json else sys.stdout.write(f"{made.token}\n")


@app.command("list")
def list_keys(database_url: DatabaseUrl = None, as_json: JsonFlag = False) -> None:
    """List all keys without their secrets."""
    with _database(database_url) as database:
        from service.db import keys
        from service.db.session import reading
        from service.schemas.keys import KeyRead, key_fields
        from service.tables import print_keys

        with reading(database) as session:
            items = [KeyRead(**key_fields(row)).model_dump(mode="json") for row in keys.list_keys(session)]
    _print({"items": items, "next_page_token": None}) if as_json else print_keys(items)


@app.command()
def revoke(
    key_id: Annotated[str, typer.Argument(help="Id of the key, the part after `cf_`.")],
    database_url: DatabaseUrl = None,
) -> None:
    """Make a key invalid at once."""
    with _database(database_url) as database:
        from service.db import keys
        from service.db.session import writing

        with writing(database) as session:
            keys.revoke_key(session, key_id)
        _audit(database, f"keys revoke {key_id}")
    sys.stdout.write(f"{key_id} is revoked\n")


@contextmanager
def _database(url: str | None) -> Iterator[Database]:
    """Yield the database with its schema up to date; what is wrong is said in one line, with exit code 2."""
    from pydantic import ValidationError

    from service.db import migrate
    from service.db.rows import NotFoundError
    from service.db.session import DatabaseUnreachableError, open_database, require_reachable
    from service.settings import SettingsError, read_settings

    try:
        settings = read_settings(**({} if url is None else {"database_url": url}))
        database = open_database(settings.resolved_database_url)
        require_reachable(database)
        if settings.migrate:
            migrate.upgrade(database)
        yield database
        database.close()
    except ValidationError as error:
        first = error.errors()[0]
        _refuse(f"{first['loc'][0]}: {first['msg']}, got {first['input']!r}")
    except (SettingsError, DatabaseUnreachableError, NotFoundError, ValueError) as error:
        _refuse(" ".join(str(error).split()))


def _refuse(reason: str) -> None:
    sys.stderr.write(f"chipfit: {reason}\n")
    raise typer.Exit(2)


def _audit(database: Database, action: str) -> None:
    from service.db import keys
    from service.db.session import writing

    with writing(database) as session:
        keys.add_audit_entry(session, "command-line", action, 200, "", "")


def _print(document: Any) -> None:
    json.dump(document, sys.stdout)
    sys.stdout.write("\n")
