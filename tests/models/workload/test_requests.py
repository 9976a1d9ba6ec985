"""Traces as their publishers write them, and what is refused by name."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.workload.requests import Requests, read_trace, require_within_context, without_arrivals

OURS = b"arrival_s,input_tokens,output_tokens\n0.0,550,150\n0.4,610,90\n"
AZURE = (
    b"TIMESTAMP,ContextTokens,GeneratedTokens\n"
    b"2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.9951690,396,109\n"
)
BURSTGPT = (
    b"Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    b"5,ChatGPT,472,18,490,Conversation log\n45,ChatGPT,1087,230,1317,Conversation log\n"
)
# block numbers of two prompts that share two blocks, and of a third that shares none
MOONCAKE = "\n".join(
    json.dumps(row)
    for row in (
        {"timestamp": 0, "input_length": 1500, "output_length": 52, "hash_ids": [46, 47, 48]},
        {"timestamp": 3000, "input_length": 1400, "output_length": 10, "hash_ids": [46, 47, 90]},
        {"timestamp": 3500, "input_length": 300, "output_length": 10, "hash_ids": [7]},
    )
).encode()


def test_own_format_keeps_prefix_and_session():
    header = b"arrival_s,input_tokens,output_tokens,cached_prefix_tokens,session_id\n"
    trace = read_trace(header + b"0.0,2100,300,0,a\n6.0,2700,280,2048,a\n6.2,900,120,512,b\n")
    assert trace.cached_prefix_tokens.tolist() == [0, 2048, 512]
    assert trace.session_id.tolist() == [0, 0, 1]


def test_own_format_without_arrivals_has_none():
    assert read_trace(b"arrival_s,input_tokens,output_tokens\n,3772,54\n,2015,156\n").arrival_s is None
    assert read_trace(b"input_tokens,output_tokens\n3772,54\n").arrival_s is None


def test_azure_arrivals_count_from_the_first_request():
    # first two rows of AzureLLMInferenceTrace_conv.csv; 4.3146 s apart
    trace = read_trace(AZURE)
    assert trace.arrival_s.tolist() == pytest.approx([0.0, 4.314579])
    assert trace.input_tokens.tolist() == [374, 396]


def test_burstgpt_is_read_in_seconds():
    assert read_trace(BURSTGPT).arrival_s.tolist() == [5.0, 45.0]
    assert read_trace(BURSTGPT).output_tokens.tolist() == [18, 230]


def test_mooncake_prefix_reuse_follows_from_its_blocks():
    trace = read_trace(MOONCAKE)
    assert trace.arrival_s.tolist() == [0.0, 3.0, 3.5]
    assert trace.cached_prefix_tokens.tolist() == [0, 1024, 0]


def test_sharegpt_conversation_becomes_one_request_per_answer():
    turns = [("human", 30), ("gpt", 200), ("human", 20), ("gpt", 100)]
    document = [{"id": "x", "conversations": [{"from": who, "value": "..", "tokens": n} for who, n in turns]}]
    trace = read_trace(json.dumps(document).encode())
    assert trace.input_tokens.tolist() == [30, 250]
    assert trace.output_tokens.tolist() == [200, 100]
    assert trace.cached_prefix_tokens.tolist() == [0, 230]


def test_benchmark_result_gives_its_lengths_and_start_times():
    result = {
        "backend": "vllm",
        "completed": 2,
        "total_input_tokens": 30,
        "input_lens": [10, 20],
        "output_lens": [5, 6],
    }
    assert read_trace(json.dumps(result).encode()).arrival_s is None
    result["start_times"] = [100.5, 101.0]
    assert read_trace(json.dumps(result).encode()).arrival_s.tolist() == [0.0, 0.5]


def test_benchmark_result_is_put_in_order_of_its_start_times():
    result = {"input_lens": [10, 20, 30], "output_lens": [1, 2, 3], "start_times": [5.0, 7.5, 6.0]}
    trace = read_trace(json.dumps(result).encode())
    assert trace.arrival_s.tolist() == [0.0, 1.0, 2.5]
    assert trace.input_tokens.tolist() == [10, 30, 20]


def test_bailian_blocks_are_shorter_and_its_clock_is_in_seconds():
    # field names and units of alibaba-edu/qwen-bailian-usagetraces-anon, README.md
    rows = [
        {"chat_id": 1, "timestamp": 0.5, "input_length": 40, "output_length": 9, "turn": 1, "hash_ids": [1, 2, 3]},
        {"chat_id": 2, "timestamp": 61.1, "input_length": 60, "output_length": 9, "turn": 2, "hash_ids": [1, 2, 9, 8]},
    ]
    trace = read_trace("\n".join(map(json.dumps, rows)).encode())
    assert trace.arrival_s.tolist() == [0.5, 61.1]
    assert trace.cached_prefix_tokens.tolist() == [0, 32]


def test_benchmark_result_without_lengths_says_how_to_get_them():
    with pytest.raises(ValueError, match="save it with its details"):
        read_trace(json.dumps({"completed": 2, "total_input_tokens": 30}).encode(), "run.json")


@pytest.mark.parametrize("separator", [";", "\t", "|"])
def test_other_separators_are_read(separator):
    assert read_trace(OURS.replace(b",", separator.encode())).input_tokens.tolist() == [550, 610]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_byte_order_mark_is_read(encoding):
    assert read_trace(OURS.decode().encode(encoding)).n == 2


@pytest.mark.parametrize("content", [OURS, AZURE, MOONCAKE], ids=["ours", "azure", "mooncake"])
def test_gzip_and_windows_line_ends_change_nothing(content):
    plain, packed = read_trace(content), read_trace(gzip.compress(content.replace(b"\n", b"\r\n")))
    np.testing.assert_array_equal(plain.arrival_s, packed.arrival_s)
    np.testing.assert_array_equal(plain.input_tokens, packed.input_tokens)


def test_provenance_and_blank_lines_are_no_rows():
    assert read_trace(b"# source: x\n\n" + OURS + b"\n\n").n == 2


@pytest.mark.parametrize(
    ("first", "second", "gap_s"),
    [
        ("2024-05-10 00:00:00.25+00:00", "2024-05-10 02:00:01+02:00", 0.75),
        ("2024-05-10T00:00:00Z", "2024-05-10T00:00:02.5Z", 2.5),
        ("2024-05-10 00:00:00-0530", "2024-05-10 05:30:03Z", 3.0),
        ("2024-05-10 00:00", "2024-05-10 00:01", 60.0),
    ],
)
def test_time_zones_are_read(first, second, gap_s):
    text = f"TIMESTAMP,ContextTokens,GeneratedTokens\n{first},1,1\n{second},1,1\n"
    assert read_trace(text.encode()).arrival_s[1] == pytest.approx(gap_s)


def test_time_zone_missing_in_a_later_chunk_is_noticed(monkeypatch):
    monkeypatch.setattr("models.workload.trace_csv.ROWS_PER_CHUNK", 1)
    with pytest.raises(ValueError, match="line 3, column 'TIMESTAMP': must state its time zone like the first row"):
        read_trace(AZURE.replace(b"900,374", b"900Z,374"))


BAD = {
    "empty": (b"", "t.csv: the trace is empty"),
    "only a header": (b"input_tokens,output_tokens\n", "t.csv: no data rows"),
    "unknown columns": (b"a,b\n1,2\n", "t.csv: columns of no known trace format: a, b; known formats: chipfit"),
    "twice": (b"input_tokens,output_tokens,input_tokens\n1,2,3\n", "column 'input_tokens' occurs twice"),
    "word": (OURS + b"1.0,many,3\n", "t.csv line 4, column 'input_tokens': must be a number, got 'many'"),
    "nan": (OURS + b"1.0,nan,3\n", "line 4, column 'input_tokens': must be a finite number, got nan"),
    "infinite": (OURS + b"inf,5,3\n", "line 4, column 'arrival_s': must be a finite number"),
    "fraction": (OURS + b"1.0,5.5,3\n", "line 4, column 'input_tokens': must be a whole number from 1"),
    "huge": (OURS + b"1.0,1e12,3\n", "must be a whole number from 1 to 100000000, got 1e\\+12"),
    "missing cell": (OURS + b"1.0,5,\n", "line 4, column 'output_tokens': .* got an empty cell"),
    "missing arrival": (OURS + b",5,3\n", "line 4, column 'arrival_s': .* got an empty cell"),
    "short row": (OURS + b"\n1.0,5\n", "t.csv line 5: must have 3 cells as the header, got 2"),
    "no input": (
        OURS + b"1.0,0,3\n",
        "line 4, column 'input_tokens': .* got 0, as failed requests are logged.* \\(1 of 3 rows\\)",
    ),
    "no output": (BURSTGPT + b"50,GPT-4,10,0,10,API log\n", "line 4, column 'Response tokens': .* got 0"),
    "negative arrival": (b"arrival_s,input_tokens,output_tokens\n-1,5,3\n", "line 2, column 'arrival_s': must be zero"),
    "unsorted": (OURS + b"0.2,5,3\n", "line 4, column 'arrival_s': must not be before the row above, got 0.2"),
    "long prefix": (
        b"input_tokens,output_tokens,cached_prefix_tokens\n5,3,6\n",
        "line 2, column 'cached_prefix_tokens': must be at most input_tokens, got 6",
    ),
    "latin-1": (OURS + b"1.0,5,\xe9\n", "t.csv line 4: must be UTF-8 text, got byte 0xe9"),
    "decimal comma": (b"arrival_s;input_tokens;output_tokens\n0,5;5;3\n", "a decimal comma is not read"),
    "american date": (AZURE + b"11/16/2023 18:16,5,5\n", "line 4, column 'TIMESTAMP': must be a date and time as"),
    "no such day": (AZURE + b"2023-02-30 18:16:00,5,5\n", "line 4, column 'TIMESTAMP': must be a date and time"),
    "named zone": (AZURE.replace(b"900,", b"900 EST,"), "line 2, column 'TIMESTAMP': must be a date and time"),
    "mixed zones": (AZURE + b"2023-11-16 18:16:00Z,5,5\n", "line 4, column 'TIMESTAMP': must state its time zone"),
    "cut gzip": (gzip.compress(OURS)[:-12], "malformed gzip file"),
    "bad gzip": (b"\x1f\x8bnothing", "malformed gzip file"),
    "bad json": (b'{"input_lens": [1,', "t.csv line 1 column .*: malformed JSON"),
    "bad json line": (MOONCAKE + b"\n{oops}\n", "t.csv line 4: malformed JSON line"),
    "json text number": (MOONCAKE.replace(b"1400", b'"1400"'), "line 2, column 'input_length': must be a number"),
    "json nan": (MOONCAKE.replace(b"1400", b"NaN"), "line 2, column 'input_length': must be a finite number"),
    "json blocks": (MOONCAKE.replace(b"[7]", b"7"), "line 3, column 'hash_ids': must be a list of numbers"),
    "json scalar": (b"[1, 2]", "record 1: must be an object"),
    "json lengths differ": (b'{"input_lens": [1, 2], "output_lens": [1]}', "arrays must have one length"),
    "no token counts": (b'[{"conversations": [{"from": "gpt", "value": "hi"}]}]', "a turn has no token count"),
    "no turns": (b'[{"conversations": 7}]', "record 1: conversations must be a list of turns, got 7"),
    "no answer": (b'[{"conversations": []}]', "no conversation has an answer"),
    "deep json": (b"[" * 100_000, "malformed JSON"),
}


@pytest.mark.parametrize(("content", "message"), BAD.values(), ids=BAD)
def test_bad_trace_is_refused_with_its_place_and_rule(content, message):
    with pytest.raises(ValueError, match=message):
        read_trace(content, "t.csv")


SEEDS = [OURS, AZURE, BURSTGPT, MOONCAKE, *(content for content, _ in BAD.values() if len(content) < 1000)]
FRAGMENTS = (
    b',|;|\n|\r|"|0|-1|nan|1e400|{|}|[|]|null|true|\x00|\xff|#|\t|99999999999999999999|Z|+25:99|\xe2\x80\xa8|1_0'.split(
        b"|"
    )
)


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from(SEEDS),
    st.lists(st.tuples(st.integers(0, 300), st.integers(0, 4), st.sampled_from(FRAGMENTS)), min_size=1, max_size=4),
)
def test_damaged_trace_is_read_or_refused_with_a_value_error(content, edits):
    for position, removed, fragment in edits:
        content = content[:position] + fragment + content[position + removed :]
    try:
        trace = read_trace(content, "t.csv")
    except ValueError as error:
        assert str(error).startswith("t.csv")
    else:
        assert trace.input_tokens.min() >= 1


def test_unknown_format_lists_the_known_ones():
    with pytest.raises(ValueError, match="azure \\(TIMESTAMP, ContextTokens, GeneratedTokens\\)"):
        read_trace(b"a,b\n1,2\n")


def test_missing_file_is_named(tmp_path):
    with pytest.raises(LookupError, match=r"no trace file '.*absent.csv'"):
        read_trace(tmp_path / "absent.csv")


def test_file_name_is_part_of_the_message(tmp_path):
    path = tmp_path / "mine.csv"
    path.write_bytes(OURS + b"x,1,1\n")
    with pytest.raises(ValueError, match=r"^mine.csv line 4"):
        read_trace(path)


def test_line_numbers_count_provenance_and_quoted_line_ends():
    text = b'# one\n# two\narrival_s,input_tokens,output_tokens,session_id\n0,1,1,"a\nb"\n1,0,1,c\n'
    with pytest.raises(ValueError, match="line 6, column 'input_tokens'"):
        read_trace(text)


def test_failed_requests_are_left_out_only_where_asked():
    trace = read_trace(BURSTGPT + b"50,GPT-4,10,0,10,API log\n", zero_token_rows="drop")
    assert (trace.n, trace.n_dropped_rows) == (2, 1)


def test_unpacked_size_is_limited(monkeypatch):
    monkeypatch.setattr("models.workload.requests.MAX_TRACE_BYTES", 1000)
    with pytest.raises(ValueError, match="must be at most 1000 B unpacked"):
        read_trace(gzip.compress(b"0" * 100_000))
    with pytest.raises(ValueError, match="must be at most 1000 B"):
        read_trace(b"0" * 2000)


def test_requests_check_their_arrays():
    ones = np.ones(2)
    with pytest.raises(ValueError, match="output_tokens must have 2 entries"):
        Requests(None, ones, np.ones(3), ones)
    with pytest.raises(ValueError, match=r"arrival_s must not be before the row above, got 0 at index 1 \(1 of 2"):
        Requests(np.array([1.0, 0.0]), ones, ones, np.zeros(2))
    with pytest.raises(ValueError, match="must not be empty"):
        Requests(None, *np.zeros((3, 0)))


def test_request_beyond_the_context_is_refused_by_number():
    trace = Requests(None, np.array([100.0, 4000.0]), np.array([10.0, 200.0]), np.zeros(2))
    require_within_context(trace, 4200, "short")
    with pytest.raises(ValueError, match=r"at most 4096, the context of short, got 4200 at request 2 \(1 of 2"):
        require_within_context(trace, 4096, "short")


def test_arrivals_can_be_forgotten():
    assert without_arrivals(read_trace(OURS)).arrival_s is None
