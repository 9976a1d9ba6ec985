"""YAML files: plain, bounded, and every fault with its line."""

import pytest

from explorer import files
from explorer.document import StudyError
from explorer.files import parse_yaml, read_yaml


def test_a_plain_document_is_read(tmp_path):
    path = tmp_path / "study.yaml"
    path.write_text("name: a\nspace: {clock: [1.0, 1.5]}\n")
    assert read_yaml(path) == {"name": "a", "space": {"clock": [1.0, 1.5]}}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: &x [1]\nb: *x\n", "study.yaml line 2: aliases are not allowed"),
        ("a: &x {b: *x}\n", "study.yaml line 1: aliases are not allowed"),
        ("a: !!python/object/apply:os.system ['true']\n", "study.yaml line 1: could not determine a constructor"),
        ("a: !secret 1\n", "study.yaml line 1: could not determine a constructor"),
        ("a: 1\nb: [1, 2\n", "study.yaml line 3"),
        ("a:\n\t- 1\n", "study.yaml line 2"),
        ("a: 1\n---\nb: 2\n", "study.yaml line 2"),
        ("a: \x00\n", "study.yaml"),
        ("[" * 3_000, "study.yaml: no plain YAML"),
    ],
)
def test_a_fault_names_file_and_line(text, message):
    with pytest.raises(StudyError, match=message):
        parse_yaml(text, "study.yaml")


def test_a_file_that_cannot_be_read_is_refused(tmp_path, monkeypatch):
    with pytest.raises(StudyError, match=r"missing\.yaml: No such file"):
        read_yaml(tmp_path / "missing.yaml")
    with pytest.raises(StudyError, match="Is a directory"):
        read_yaml(tmp_path)
    (tmp_path / "latin.yaml").write_bytes(b"name: \xff\xfe\n")
    with pytest.raises(StudyError, match=r"latin\.yaml must be UTF-8 text"):
        read_yaml(tmp_path / "latin.yaml")
    monkeypatch.setattr(files, "MAX_BYTES", 3)
    (tmp_path / "large.yaml").write_text("name: a\n")
    with pytest.raises(StudyError, match=r"large\.yaml must be at most 3 bytes"):
        read_yaml(tmp_path / "large.yaml")
