"""Tables of docs/scaling.md, from the studies printed there: `python -m service.scaling_page` writes them."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from explorer.evaluation import evaluate_document
from explorer.records import design_document
from models.hardware.catalog import chip_designs
from service.scaling_tables import plan_text

PAGE = Path(__file__).parents[1] / "docs" / "scaling.md"
CHIP = "h100_sxm"
SERVED, TRAINED = "too-large-for-a-node", "pre-training"
"""Names of the studies on the page."""

SERVED_CHIPS = (8, 16, 1024, 16384)
TRAINED_CHIPS = (8, 64, 1024, 4096, 16384)
NETWORKS_BYTES_PER_S = (12.5e9, 50e9, 450e9)
ACROSS = (("llama-3.1-405b", "bf16"), ("deepseek-v3", "deepseek_v3"))
"""Networks with the recipe that sets their quality budget."""

STEP_HEADINGS = ("chips", "nodes", "rate", "efficiency", "plan", "waits for")
ACROSS_HEADINGS = ("network", "between nodes", "best plan", "across nodes", "rate over the best", "waits between nodes")


def printed_study(page: str, name: str) -> dict[str, Any]:
    """The study of a name on the page."""
    blocks = (yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", page, flags=re.DOTALL))
    return next(found for found in blocks if found.get("name") == name)


def serving_table(page: str) -> str:
    """A network that no node holds, from one node to many."""
    return _table(STEP_HEADINGS, _step_rows(_steps(printed_study(page, SERVED), SERVED_CHIPS)))


def training_table(page: str) -> str:
    """One batch for all chips."""
    return _table(STEP_HEADINGS, _step_rows(_steps(printed_study(page, TRAINED), TRAINED_CHIPS)))


def across_table(page: str) -> str:
    """Plans inside nodes and across them, by network and rate between the nodes."""
    rows = []
    for network, recipe in ACROSS:
        for rate in NETWORKS_BYTES_PER_S:
            document = copy.deepcopy(printed_study(page, SERVED))
            document["workload"]["scenarios"][0]["network"] = network
            document["quality"] = {"no_worse_than": recipe}
            document["system"]["scale_out"] = {"bandwidth": f"{rate} B/s"}
            (step,) = _steps(document, (16,), scale_out_bytes_per_s=rate)
            rows.append((network, f"{rate / 1e9:g} GB/s", plan_text(step["plan"]), *_across(step)))
    return _table(ACROSS_HEADINGS, rows)


TABLES: Mapping[str, Callable[[str], str]] = {
    "serving": serving_table,
    "across": across_table,
    "training": training_table,
}
"""Marker on the page -> its table."""


def table_on_page(page: str, name: str) -> str:
    """What stands between the markers of a table."""
    return page.split(f"<!-- {name}:begin -->\n")[1].split(f"\n<!-- {name}:end -->")[0]


def _steps(document: Mapping[str, Any], chips: Sequence[int], **fields: float) -> list[dict[str, Any]]:
    design = design_document(chip_designs([CHIP]), 0) | fields
    answer = evaluate_document({"design": design, "study": document, "scaling": {"chips": list(chips)}})
    steps: list[dict[str, Any]] = answer["scaling"]["scenarios"][0]["steps"]
    return steps


def _across(step: Mapping[str, Any]) -> tuple[str, str, str]:
    wide = step["tensor_parallel_across_nodes"]
    waits = wide["time_shares"].get("network", 0.0) + wide["time_shares"]["scale_out_link"]
    return plan_text(wide["degrees"]), f"{wide['rate_ratio']:.2f}", f"{waits:.0%}"


def _step_rows(steps: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, ...]]:
    for step in steps:
        size = (f"{step['n_chips']:,}", f"{step['n_nodes']:,}")
        if not step["serves"]:
            yield *size, "", "", "", f"{step['limit']} exceeded by {step['excess_fraction']:.0%}"
            continue
        shares, binding = step["time_shares"], step["binding_resource"]
        waits = f"{binding} {shares[binding]:.0%}, links {shares['scale_up_link']:.0%}"
        rate, efficiency = f"{step['units_per_s']:.3g}", f"{step['efficiency_ratio']:.2f}"
        yield *size, rate, efficiency, plan_text(step["plan"]), f"{waits}, network {shares.get('network', 0.0):.0%}"


def _table(headings: Sequence[str], rows: Iterator[tuple[str, ...]] | Sequence[tuple[str, ...]]) -> str:
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def main() -> None:
    """Write the tables into the page."""
    page = PAGE.read_text(encoding="utf-8")
    for name, make in TABLES.items():
        before, rest = page.split(f"<!-- {name}:begin -->\n")
        page = (
            f"{before}<!-- {name}:begin -->\n{make(page)}\n<!-- {name}:end -->" + rest.split(f"<!-- {name}:end -->")[1]
        )
    PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
