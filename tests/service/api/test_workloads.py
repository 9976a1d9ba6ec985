"""Workloads sent over HTTP: every kind, every form, every fault; nothing is stored where one is refused."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from fastapi.testclient import TestClient

from explorer.workload_file import inspect_file
from tests.service.test_http import problem_of

ROWS = "arrival_s,input_tokens,output_tokens\n" + "".join(f"{i},{100 + i},{10 + i}\n" for i in range(50))
LIST = "m,n,k,count\n512,512,512,2\n64,64,64,1\n"
LAYERS = "in_h,in_w,in_c,out_c,kernel_h,kernel_w\n8,8,16,32,3,3\n8,8,32,32,1,1\n"
SCENARIO = {"name": "list", "kind": "gemm_list", "rows": [{"m": 64, "n": 64, "k": 64}]}
CSV = {"content-type": "text/csv"}


def sent(client: TestClient, content: str | bytes, name: str = "trace.csv", **query: str) -> httpx.Response:
    return client.post("/v1/workloads", params={"name": name, **query}, content=content, headers=CSV)


def stored_ids(client: TestClient) -> list[str]:
    return [item["id"] for item in client.get("/v1/workloads?page_size=500").json()["items"]]


@pytest.fixture(autouse=True)
def _clean(client: TestClient) -> Iterator[None]:
    yield
    for workload_id in stored_ids(client):
        assert client.delete(f"/v1/workloads/{workload_id}").status_code == 204


class TestATrace:
    def test_is_answered_with_what_the_command_prints(self, client: TestClient, tmp_path: Path) -> None:
        (tmp_path / "trace.csv").write_text(ROWS)
        answer = sent(client, ROWS)
        assert answer.status_code == 201, answer.text
        document = answer.json()
        assert document["requests"]["input_tokens"]["mean"] == 124.5
        printed = json.loads(json.dumps(inspect_file(tmp_path / "trace.csv")))
        assert {key: document[key] for key in printed} == printed
        assert client.get(answer.headers["Location"]).json() == document

    def test_sent_twice_is_stored_once(self, client: TestClient) -> None:
        first, second = sent(client, ROWS), sent(client, ROWS, "other.csv")
        assert (first.status_code, second.status_code) == (201, 200)
        assert second.json() == first.json()
        assert stored_ids(client) == [first.json()["id"]]

    def test_may_be_gzipped_or_the_field_of_a_form(self, client: TestClient) -> None:
        plain = sent(client, ROWS).json()
        packed = sent(client, gzip.compress(ROWS.encode()), "trace.csv.gz")
        form = client.post("/v1/workloads", files={"file": ("C:\\traces\\trace.csv", ROWS, "text/csv")})
        assert packed.json()["id"] == form.json()["id"] == plain["id"]

    def test_in_a_form_keeps_every_byte(self, client: TestClient) -> None:
        content = "\ufeff" + ROWS.replace("\n", "\r\n")
        form = client.post("/v1/workloads", files={"other": ("x", "y"), "file": ("trace.csv", content.encode())})
        assert form.json()["size_bytes"] == len(content.encode())
        assert form.json()["sha256"] == sent(client, content.encode()).json()["sha256"]
        assert form.json()["requests"]["count"] == 50

    @pytest.mark.parametrize(
        ("content", "count"),
        [
            ("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6,100,10\n2023-11-16 18:15:50.9,30,3\n", 2),
            ("Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,GPT-4,472,18,490,API log\n", 1),
            ('{"timestamp": 0, "input_length": 900, "output_length": 5, "hash_ids": [1, 2]}\n' * 2, 2),
            ('[{"conversations": [{"from": "human", "tokens": 9}, {"from": "gpt", "tokens": 7}]}]', 1),
            ('{"input_lens": [5, 6, 7], "output_lens": [1, 2, 3], "start_times": [0.5, 0.25, 1]}', 3),
            ("input_tokens;output_tokens\n5;6\n", 1),
        ],
        ids=["azure", "burstgpt", "mooncake", "sharegpt", "benchmark result", "semicolons"],
    )
    def test_of_any_publisher_is_recognised(self, client: TestClient, content: str, count: int) -> None:
        answer = client.post("/v1/workloads", content=content, headers={"content-type": "application/octet-stream"})
        assert answer.status_code == 201, answer.text
        assert answer.json()["kind"] == "trace"
        assert answer.json()["requests"]["count"] == count

    def test_with_rows_without_tokens_is_refused_or_says_how_many_it_leaves_out(self, client: TestClient) -> None:
        content = ROWS + "60,0,0\n61,7,0\n"
        problem = problem_of(sent(client, content), 422)
        assert "line 52, column 'input_tokens'" in problem["detail"]
        assert "leave such rows out" in problem["detail"]
        answer = sent(client, content, zero_token_rows="drop")
        assert answer.json()["requests"]["n_dropped_rows"] == 2
        assert answer.json()["requests"]["count"] == 50


class TestOtherFiles:
    @pytest.mark.parametrize(
        ("content", "name", "kind"),
        [
            (LIST, "list.csv", "gemm_list"),
            ("- {m: 512, n: 512, k: 512, count: 2}\n- {m: 64, n: 64, k: 64}\n", "list.yaml", "gemm_list"),
            (LAYERS, "layers.csv", "layer_table"),
            (json.dumps({"scenarios": [SCENARIO]}), "work.json", "workload"),
            ("scenarios:\n  - {name: images, kind: convnet, network: resnet-50, batch: 4}\n", "work.yaml", "workload"),
        ],
        ids=["GEMM list CSV", "GEMM list YAML", "layer table", "workload JSON", "workload YAML"],
    )
    def test_become_operators(self, client: TestClient, content: str, name: str, kind: str) -> None:
        answer = sent(client, content, name)
        assert answer.status_code == 201, answer.text
        assert answer.json()["kind"] == kind
        operators = answer.json()["scenarios"][0]["operators"]
        assert operators["totals"]["flop"] > 0
        assert operators["gemm_sizes"]["flop"]["m"]["p50"] > 0

    def test_of_a_workload_may_name_an_uploaded_trace(self, client: TestClient) -> None:
        trace = sent(client, ROWS).json()["id"]
        scenario = {"name": "chat", "kind": "llm_serving", "network": "llama-3.1-8b", "requests": {"trace": trace}}
        answer = sent(client, json.dumps({"scenarios": [scenario]}), "work.json")
        assert answer.status_code == 201, answer.text
        assert answer.json()["requests"]["input_tokens"]["mean"] == 124.5


class TestAList:
    def test_has_pages_newest_first(self, client: TestClient) -> None:
        ids = [sent(client, ROWS + f"{60 + i},5,5\n").json()["id"] for i in range(3)]
        first = client.get("/v1/workloads?page_size=2").json()
        second = client.get("/v1/workloads", params={"page_size": 2, "page_token": first["next_page_token"]}).json()
        assert [item["id"] for item in first["items"] + second["items"]] == ids[::-1]
        assert second["next_page_token"] is None
        assert "requests" not in first["items"][0]

    def test_forgets_what_is_deleted(self, client: TestClient) -> None:
        workload_id = sent(client, ROWS).json()["id"]
        assert client.delete(f"/v1/workloads/{workload_id}").status_code == 204
        for method in ("GET", "DELETE"):
            problem_of(client.request(method, f"/v1/workloads/{workload_id}"), 404)


HEADER = "arrival_s,input_tokens,output_tokens\n"

BAD_FILES = {
    "empty": ("", "trace.csv", "the trace is empty"),
    "no rows": (HEADER, "trace.csv", "no data rows"),
    "negative arrival": (HEADER + "-1,5,5\n", "trace.csv", "line 2, column 'arrival_s': must be zero or positive"),
    "unsorted": (HEADER + "5,5,5\n1,5,5\n", "trace.csv", "line 3, column 'arrival_s': must not be before"),
    "not UTF-8": (HEADER.encode() + b"0,\xff\xfe,1\n", "trace.csv", "line 2: must be UTF-8 text, got byte 0xff"),
    "not finite": (HEADER + "0,nan,5\n", "trace.csv", "must be a finite number, got nan"),
    "time zone": (
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46 CET,1,1\n", "trace.csv", "Z, +hh:mm or no time",
    ),
    "unknown columns": ("a,b\n1,2\n", "trace.csv", "columns of no known trace format: a, b"),
    "malformed JSON": ('{"input_lens": [1,', "trace.json", "line 1 column"),
    "broken gzip": (b"\x1f\x8b\x08rubbish", "trace.csv.gz", "malformed gzip file"),
    "cyclic YAML": ("scenarios: &x [*x]\n", "work.yaml", "work.yaml line 1: aliases are not allowed"),
    "YAML tag": ("scenarios: !!python/object/apply:os.system [ls]\n", "work.yaml", "could not determine a constructor"),
    "huge GEMM": ("m,n,k\n99999999999,1,1\n", "list.csv", "line 2: column m must be between 1 and 2147483648"),
    "no layer": ("in_h,in_w,in_c,out_c,kernel_h,kernel_w\n8,8,16,32,9,9\n", "l.csv", "kernel_h must be at most"),
    "no study": ("name: x\n", "study.yaml", "workload: Field required"),
    "beyond the context": (
        json.dumps({"scenarios": [{"name": "chat", "kind": "llm_serving", "network": "llama-2-7b", "requests":
                    {"histogram": [{"input": 5000, "output": 1, "weight": 1}]}}]}),
        "work.json", "at most 4096, the context of llama-2-7b, got 5001",
    ),
    "huge network": (
        json.dumps({"scenarios": [{"name": "chat", "kind": "llm_serving", "requests": {"preset": "llmperf-550-150"},
                    "network": {"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 10**12}}]}),
        "work.json", "network.hidden_size must be between 1 and",
    ),
}  # fmt: skip


class TestBadInput:
    @pytest.mark.parametrize(("content", "name", "message"), BAD_FILES.values(), ids=BAD_FILES)
    def test_is_refused_by_line_or_field_and_leaves_nothing(
        self, client: TestClient, content: str | bytes, name: str, message: str
    ) -> None:
        problem = problem_of(sent(client, content, name), 422)
        assert message in problem["detail"]
        assert problem["errors"][0]["detail"] in problem["detail"]
        assert stored_ids(client) == []

    def test_of_a_form_without_a_file_is_refused(self, client: TestClient) -> None:
        problem = problem_of(client.post("/v1/workloads", files={"trace": ("a.csv", ROWS)}), 422)
        assert problem["errors"][0]["pointer"] == "/file"
        headers = {"content-type": "multipart/form-data"}
        problem_of(client.post("/v1/workloads", content=b"--x", headers=headers), 422)

    def test_of_an_unknown_choice_is_refused(self, client: TestClient) -> None:
        assert problem_of(sent(client, ROWS, zero_token_rows="keep"), 422)["errors"][0]["pointer"] == (
            "query.zero_token_rows"
        )
