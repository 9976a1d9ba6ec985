"""Calibration profiles and measurements over HTTP."""

import csv
import io

import pytest

from models.fidelity.profiles import shipped_profiles
from service.db.profiles import add_profile
from service.db.session import writing
from service.profiles import checked_profile, with_stored_profiles

PROFILE = {"name": "lab", "device": "h100_sxm", "constants": {"gemm": {"memory_efficiency": 0.9}}}
COLUMNS = ("device", "m", "n", "k", "dtype", "latency_us")


def table(rows, columns=COLUMNS):
    text = io.StringIO()
    csv.writer(text).writerows([columns, *rows])
    return text.getvalue()


def post(client, text, **query):
    return client.post("/v1/measurements", params=query, content=text, headers={"Content-Type": "text/csv"})


def test_a_profile_is_stored_once_and_found_by_its_id(client):
    first = client.post("/v1/profiles", json=PROFILE)
    again = client.post("/v1/profiles", json=PROFILE)
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json()["id"] == again.json()["id"]
    found = client.get(first.headers["Location"])
    assert found.json()["constants"] == PROFILE["constants"]
    assert not found.json()["shipped"]


def test_shipped_profiles_are_listed_and_found_by_name(client):
    listed = client.get("/v1/profiles", params={"page_size": 500}).json()["items"]
    assert {each["id"] for each in listed if each["shipped"]} == set(shipped_profiles())
    name = next(iter(shipped_profiles()))
    assert client.get(f"/v1/profiles/{name}").json()["shipped"]


def test_a_profile_is_deleted(client):
    created = client.post("/v1/profiles", json=PROFILE | {"name": "gone"}).json()
    assert client.delete(f"/v1/profiles/{created['id']}").status_code == 204
    assert client.get(f"/v1/profiles/{created['id']}").status_code == 404


@pytest.mark.parametrize(
    ("change", "detail"),
    [
        ({"constants": {"gem": {"start": 1.0}}}, "unknown operator family 'gem'"),
        ({"constants": {"gemm": {"memory_efficiency": -1.0}}}, "gemm.memory_efficiency must be positive"),
        ({"constants": {}}, "constants must map a family"),
        ({"speed": 2}, "unknown field of a profile 'speed'"),
    ],
    ids=["family", "negative", "empty", "field"],
)
def test_what_is_no_profile_is_refused(client, change, detail):
    answer = client.post("/v1/profiles", json=PROFILE | change)
    assert answer.status_code == 422
    assert detail in answer.json()["errors"][0]["detail"]


def test_a_document_gets_the_content_of_the_profile_it_names(database):
    with writing(database) as session:
        profile_id, content = checked_profile(PROFILE)
        add_profile(session, profile_id, content)
    for name in (profile_id, "lab"):
        whole = with_stored_profiles(database, {"chip": "h100_sxm", "study": {"profile": name}, "profile": name})
        assert whole["profile"] == whole["study"]["profile"] == content
    assert with_stored_profiles(database, {"profile": "unknown"}) == {"profile": "unknown"}


def test_measured_times_are_kept_beside_their_prediction(client):
    rows = [["h100_sxm", 4096, 4096, 4096, "bf16", 260.0], ["h100_sxm", 8192, 8192, 8192, "bf16", 1900.0]]
    taken = post(client, table(rows), software_version="cublas 12.4", kernel="gemm", clock_hz=1.7e9)
    assert taken.status_code == 201
    assert taken.json()["stored"] == 2
    found = client.get("/v1/measurements", params={"device": "h100_sxm"}).json()["items"]
    own = [each for each in found if each["batch"] == taken.json()["batch"]]
    assert own[0]["software_version"] == "cublas 12.4"
    assert own[0]["measured_s"] == pytest.approx(260e-6)
    assert own[0]["error_fraction"] == pytest.approx(own[0]["predicted_s"] / 260e-6 - 1.0)
    assert abs(own[0]["error_fraction"]) < 0.5


def test_times_that_cannot_be_are_refused_by_line(client):
    rows = [
        ["h100_sxm", 8192, 8192, 8192, "bf16", 1900.0],
        ["h100_sxm", 8192, 8192, 8192, "bf16", 500.0],
        ["h100_sxm", 8192, 8192, 8192, "bf16", 1.9e6],
    ]
    refused = post(client, table(rows)).json()["refused"]
    assert [each["line"] for each in refused] == [3, 4]
    assert "that the hardware needs" in refused[0]["detail"]
    assert "in the unit of its column" in refused[1]["detail"]


def test_the_trend_of_errors_is_by_version_of_the_model(client):
    post(client, table([["a100_sxm", 4096, 4096, 4096, "bf16", 600.0]]))
    (entry,) = client.get("/v1/measurements/errors", params={"device": "a100_sxm"}).json()["items"]
    assert entry["family"] == "gemm"
    assert entry["rows"] >= 1
    assert 0 <= entry["mape"] < 1


@pytest.mark.parametrize(
    ("text", "detail"),
    [
        (table([["h100_sxm", 1, 2, 3, "bf16", 1]], (*COLUMNS[:-1], "latency_ms")), "those of no measured table"),
        (table([["h100_sxm", 1, 2, 3, "bf16", "fast"]]), "latency_us must be a positive number"),
        ("", "no header"),
    ],
    ids=["unit", "text", "empty"],
)
def test_what_is_no_measured_table_is_refused(client, text, detail):
    answer = post(client, text)
    assert answer.status_code == 422
    assert detail in answer.json()["errors"][0]["detail"]
