"""The tables of docs/scaling.md are what the studies printed beside them give."""

import copy
import re
from pathlib import Path

import pytest
import yaml

from explorer.evaluation import evaluate_document
from explorer.records import design_document
from models.hardware.catalog import chip_designs
from service.scaling_tables import plan_text

PAGE = Path(__file__).parents[3] / "docs" / "scaling.md"
SIZES = [8, 16, 1024, 16384]
TRAINED = [8, 64, 1024, 4096, 16384]
NETWORKS = [12.5, 50.0, 450.0]


def printed_study(name):
    blocks = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    return next(found for found in map(yaml.safe_load, blocks) if found.get("name") == name)


def steps_of(document, sizes, **fields):
    judged = {"chip": "h100_sxm"} if not fields else {"design": design_document(chip_designs(["h100_sxm"]), 0) | fields}
    answer = evaluate_document({**judged, "study": document, "scaling": {"chips": sizes}})
    return answer["scaling"]["scenarios"][0]["steps"]


def table(headings, rows):
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def step_rows(steps):
    for step in steps:
        size = [f"{step['n_chips']:,}", f"{step['n_nodes']:,}"]
        if not step["serves"]:
            yield [*size, "", "", "", f"{step['limit']} exceeded by {step['excess_fraction']:.0%}"]
            continue
        links = {name: step["time_shares"].get(name, 0.0) for name in ("scale_up_link", "network")}
        binding = step["binding_resource"]
        waits = f"{binding} {step['time_shares'][binding]:.0%}, links {links['scale_up_link']:.0%}"
        yield [*size, f"{step['units_per_s']:.3g}", f"{step['efficiency_ratio']:.2f}", plan_text(step["plan"]),
               f"{waits}, network {links['network']:.0%}"]  # fmt: skip


STEP_HEADINGS = ["chips", "nodes", "rate", "efficiency", "plan", "waits for"]


def serving_table():
    return table(STEP_HEADINGS, step_rows(steps_of(printed_study("too-large-for-a-node"), SIZES)))


def training_table():
    return table(STEP_HEADINGS, step_rows(steps_of(printed_study("pre-training"), TRAINED)))


def across_table():
    rows = []
    for network, recipe in (("llama-3.1-405b", "bf16"), ("deepseek-v3", "deepseek_v3")):
        for bandwidth in NETWORKS:
            document = copy.deepcopy(printed_study("too-large-for-a-node"))
            document["workload"]["scenarios"][0]["network"] = network
            document["quality"] = {"no_worse_than": recipe}
            document["system"]["scale_out"] = {"bandwidth": f"{bandwidth} GB/s"}
            (step,) = steps_of(document, [16], scale_out_bytes_per_s=bandwidth * 1e9)
            wide = step["tensor_parallel_across_nodes"]
            shares = wide["time_shares"]
            rows.append([
                network, f"{bandwidth:g} GB/s", plan_text(step["plan"]), plan_text(wide["degrees"]),
                f"{wide['rate_ratio']:.2f}", f"{shares.get('network', 0.0) + shares['scale_out_link']:.0%}",
            ])  # fmt: skip
    return table(
        ["network", "between nodes", "best plan", "across nodes", "rate over the best", "waits between nodes"], rows
    )


TABLES = {"serving": serving_table, "across": across_table, "training": training_table}


@pytest.mark.parametrize("name", TABLES)
def test_the_page_holds_the_table_that_its_study_gives(name):
    text = PAGE.read_text()
    found = text.split(f"<!-- {name}:begin -->\n")[1].split(f"\n<!-- {name}:end -->")[0]
    assert found == TABLES[name]()
