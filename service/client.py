"""A thin client of the API: submit, follow, read. It needs httpx; pyarrow and pandas only where tables are asked."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

import httpx

if TYPE_CHECKING:
    import pandas
    import pyarrow

Document = dict[str, Any]

ZeroTokenRows = Literal["refuse", "drop"]

ENDED = ("succeeded", "failed", "cancelled")

_RETRY_AFTER_S = 0.5
_GIVE_UP_AFTER_S = 60.0
"""Time without any answer after which following a study is given up."""


class ApiError(Exception):
    """The server refused a call: its problem document says what is wrong, and at which field."""

    def __init__(self, problem: Mapping[str, Any]) -> None:
        self.status = int(problem.get("status", 0))
        self.detail = str(problem.get("detail", ""))
        self.errors: list[Document] = list(problem.get("errors", ()))
        super().__init__(f"{self.status}: {self.detail}")


class StudyFailedError(Exception):
    """A study that was waited for ended without a result."""


@dataclass(frozen=True)
class Event:
    """Something that happened to a study: `state` or `progress`, and how far it is."""

    id: str
    kind: str
    progress: Document


class Client:
    """
    Calls to one server.

    Parameters
    ----------
    url : str
        Where the server answers, with the path prefix of a proxy where there is one.
    key : str, optional
        API key, where the server asks for one.
    timeout_s : float
        Longest wait for one answer. [s]
    """

    def __init__(self, url: str = "http://127.0.0.1:8080", *, key: str | None = None, timeout_s: float = 60.0) -> None:
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        self._http = httpx.Client(base_url=url, headers=headers, timeout=timeout_s)

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give the connections back."""
        self._http.close()

    def submit(self, document: Mapping[str, Any], *, idempotency_key: str | None = None) -> Document:
        """Queue a study and return it; the same key twice makes one study."""
        headers = {} if idempotency_key is None else {"Idempotency-Key": idempotency_key}
        return self._json("POST", "/v1/studies", json=dict(document), headers=headers)

    def study(self, study_id: str) -> Document:
        """Return a study, with its `result` once it has succeeded."""
        return self._json("GET", f"/v1/studies/{study_id}")

    def studies(self, *, state: str | None = None) -> Iterator[Document]:
        """Yield studies, newest first."""
        return self._pages("/v1/studies", {"state": state})

    def cancel(self, study_id: str) -> Document:
        """Cancel a queued or running study; what it has found stays."""
        return self._json("POST", f"/v1/studies/{study_id}:cancel")

    def resume(self, study_id: str) -> Document:
        """Queue a cancelled or failed study again."""
        return self._json("POST", f"/v1/studies/{study_id}:resume")

    def delete_study(self, study_id: str) -> None:
        """Remove a finished study with its designs."""
        self._call("DELETE", f"/v1/studies/{study_id}")

    def events(self, study_id: str, *, after: str = "0") -> Iterator[Event]:
        """Yield what happens to a study until it ends; a broken connection goes on behind the last event seen."""
        heard_s, is_over = time.monotonic(), False
        while not is_over:
            is_new = False
            try:
                with self._stream(f"/v1/studies/{study_id}/events", {"Last-Event-ID": after}) as answer:
                    for event in _events_in(answer.iter_lines()):
                        after, is_new, is_over = event.id, True, event.progress["state"] in ENDED
                        yield event
                is_over = is_over or (not is_new and self.study(study_id)["state"] in ENDED)
                heard_s = time.monotonic()
            except httpx.TransportError:
                heard_s = time.monotonic() if is_new else heard_s
                if time.monotonic() - heard_s > _GIVE_UP_AFTER_S:
                    raise
            if not is_over:
                time.sleep(_RETRY_AFTER_S)

    def wait(self, study_id: str, report: Callable[[Document], None] | None = None) -> Document:
        """
        Return the result of a study once it has ended.

        Parameters
        ----------
        study_id : str
        report : callable, optional
            Told the progress (`state`, `trials_done`, `busy_s`, `eta_s`, ...) with every event.

        Raises
        ------
        StudyFailedError
            If it failed or was cancelled.
        """
        for event in self.events(study_id):
            if report is not None:
                report(event.progress)
        study = self.study(study_id)
        if study["state"] != "succeeded":
            raise StudyFailedError(f"study '{study_id}' has {study['state']}: {study['error'] or 'no reason given'}")
        result: Document = study["result"]
        return result

    def recommendation(self, study_id: str) -> Document:
        """Return the recommended design, or the limit that binds where none is feasible."""
        return self._json("GET", f"/v1/studies/{study_id}/recommendation")

    def explanation(self, study_id: str, *, trial: int | None = None, chip: str | None = None) -> Document:
        """Return why the recommended design, a trial or a chip does what it does, and what relief would bring."""
        return self._json("GET", f"/v1/studies/{study_id}/explanation", params=_stated({"trial": trial, "chip": chip}))

    def pareto(self, study_id: str) -> list[Document]:
        """Return the designs that no other one of the study beats."""
        front: list[Document] = self._json("GET", f"/v1/studies/{study_id}/pareto")["pareto"]
        return front

    def designs(self, study_id: str, *, feasible: bool | None = None) -> Iterator[Document]:
        """Yield the records of a study in trial order."""
        return self._pages(f"/v1/studies/{study_id}/designs", {"feasible": feasible})

    def history(self, *, filter: str | None = None, order_by: str | None = None) -> Iterator[Document]:
        """Yield designs of all studies that meet a filter such as `area_mm2 < 400 and feasible = true`."""
        return self._pages("/v1/designs", {"filter": filter, "order_by": order_by})

    def evaluate(self, document: Mapping[str, Any]) -> Document:
        """Return a `design` or `chip` judged on the workload of a `study`."""
        return self._json("POST", "/v1/evaluations", json=dict(document))

    def upload_workload(
        self,
        file: Path | str | bytes,
        name: str | None = None,
        *,
        zero_token_rows: ZeroTokenRows = "refuse",
    ) -> Document:
        """Send a trace, GEMM list, layer table or workload, a path or content with a name; return what it asks for."""
        content = file if isinstance(file, bytes) else Path(file).read_bytes()
        known = name or (Path(file).name if isinstance(file, Path | str) else "workload")
        query = {"name": known, "zero_token_rows": zero_token_rows}
        headers = {"Content-Type": "application/octet-stream"}
        return self._json("POST", "/v1/workloads", params=query, content=content, headers=headers)

    def upload_network(self, config: Mapping[str, Any], name: str | None = None) -> Document:
        """Send a Hugging Face `config.json`; return parameter counts and cache size."""
        return self._json("POST", "/v1/networks", params=_stated({"name": name}), json=dict(config))

    def export(self, path: Path | str, study_id: str, *, format: str = "parquet") -> Path:
        """Write the designs of a study to a file (`csv`, `parquet`, `json` or `optuna`) as they come."""
        target = Path(path)
        with (
            self._stream(f"/v1/studies/{study_id}/export", {}, {"format": format}) as answer,
            target.open("wb") as file,
        ):
            for piece in answer.iter_bytes():
                file.write(piece)
        return target

    def table(self, study_id: str | None = None, *, filter: str | None = None) -> pyarrow.Table:
        """Return the designs of a study, or those of the history that meet a filter, as a table; needs pyarrow."""
        import pyarrow.parquet as parquet

        path = "/v1/designs:export" if study_id is None else f"/v1/studies/{study_id}/export"
        query = _stated({"format": "parquet", "filter": filter if study_id is None else None})
        table: pyarrow.Table = parquet.read_table(io.BytesIO(self._call("GET", path, params=query).content))
        return table

    def frame(self, study_id: str | None = None, *, filter: str | None = None) -> pandas.DataFrame:
        """Return the same as a data frame; needs pandas too."""
        frame: pandas.DataFrame = self.table(study_id, filter=filter).to_pandas()
        return frame

    def _call(self, method: str, path: str, **options: Any) -> httpx.Response:
        answer = self._http.request(method, path, **options)
        _require_success(answer)
        return answer

    def _json(self, method: str, path: str, **options: Any) -> Document:
        document: Document = self._call(method, path, **options).json()
        return document

    def _stream(self, path: str, headers: Mapping[str, str], query: Mapping[str, str] | None = None) -> _Stream:
        return _Stream(self._http.stream("GET", path, headers=dict(headers), params=dict(query or {})))

    def _pages(self, path: str, query: Mapping[str, Any]) -> Iterator[Document]:
        token: str | None = None
        while True:
            page = self._json("GET", path, params=_stated({**query, "page_size": 500, "page_token": token}))
            yield from page["items"]
            token = page["next_page_token"]
            if token is None:
                return


class _Stream:
    """An answer that is read as it comes, refused where the server refuses."""

    def __init__(self, opened: Any) -> None:
        self.opened = opened

    def __enter__(self) -> httpx.Response:
        answer: httpx.Response = self.opened.__enter__()
        if answer.is_error:
            answer.read()
            self.opened.__exit__(None, None, None)
            _require_success(answer)
        return answer

    def __exit__(self, *error: Any) -> None:
        self.opened.__exit__(*error)


def _require_success(answer: httpx.Response) -> None:
    if not answer.is_error:
        return
    try:
        problem = answer.json()
    except ValueError:
        problem = None
    raise ApiError(
        problem if isinstance(problem, dict) else {"status": answer.status_code, "detail": answer.text[:500]}
    )


def _stated(query: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in query.items() if value is not None}


def _events_in(lines: Iterator[str]) -> Iterator[Event]:
    """Events of a stream; comments keep it alive and say nothing."""
    fields: dict[str, str] = {}
    for line in lines:
        if not line and "data" in fields:
            yield Event(fields.get("id", "0"), fields.get("event", "message"), json.loads(fields["data"]))
        if not line:
            fields = {}
        elif not line.startswith(":"):
            name, _, value = line.partition(":")
            fields[name] = value.removeprefix(" ")
