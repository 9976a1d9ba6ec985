"""The command line: parse, call, print. `--json` prints one JSON document on stdout and nothing else."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from explorer.processes import default_processes, other_processes
from service import key_commands

app = typer.Typer(
    add_completion=False, no_args_is_help=True, help="Which accelerator fits the work we really have?",
    pretty_exceptions_enable=False,
)  # fmt: skip

ProfileOption = Annotated[
    str | None, typer.Option("--profile", help="Calibration profile: a file (TOML) or the name of a shipped one.")
]
JsonFlag = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Bad input ends with exit code 2 and one line on stderr."""
    from explorer.document import StudyError
    from models.checks import UnknownNameError
    from models.fidelity.report import TableError
    from service.db.session import DatabaseUnreachableError
    from service.settings import SettingsError

    try:
        yield
    except (StudyError, TableError, UnknownNameError, SettingsError, DatabaseUnreachableError, OSError) as error:
        print(f"chipfit: {' '.join(str(error).split())}", file=sys.stderr)
        raise typer.Exit(2) from None


def print_json(document: Any) -> None:
    """One JSON document on stdout."""
    json.dump(document, sys.stdout, allow_nan=False)
    sys.stdout.write("\n")


@app.command()
def explore(
    study: Annotated[Path, typer.Argument(help="Study document (YAML).")],
    out: Annotated[Path | None, typer.Option(help="Folder for result.json and designs.csv.")] = None,
    trials: Annotated[int | None, typer.Option(help="Trials instead of the study's.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed instead of the study's.")] = None,
    sampler: Annotated[str | None, typer.Option(help="Sampler instead of the study's.")] = None,
    certify: Annotated[
        bool | None, typer.Option("--certify/--no-certify", help="Prove how good the answer is.")
    ] = None,
    target_gap: Annotated[float | None, typer.Option(help="Gap at which a proof may stop, a fraction.")] = None,
    timeout_s: Annotated[float | None, typer.Option(help="Search time in seconds.")] = None,
    processes: Annotated[
        int, typer.Option(min=1, max=64, envvar="CHIPFIT_PROCESSES", help="Processes that share a proof.")
    ] = default_processes(),
    profile: ProfileOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Search the designs of a study and print the best."""
    with other_processes(processes - 1) as others, one_line_errors():
        from explorer.files import read_yaml, with_profile
        from explorer.run import explore_study
        from service.tables import print_result

        document = with_profile(read_yaml(study), profile)
        stated = {
            "trials": trials, "seed": seed, "sampler": sampler, "certify": certify, "target_gap": target_gap,
            "timeout": None if timeout_s is None else f"{timeout_s} s",
        }  # fmt: skip
        _override_search(document, {name: value for name, value in stated.items() if value is not None})
        with _progress(not as_json) as report:
            result = explore_study(document, study.parent, report, others)
        if out is not None:
            _write_result(out, result)
        print_json(result) if as_json else print_result(result)


def _override_search(document: Any, stated: dict[str, Any]) -> None:
    if isinstance(document, dict) and stated:
        search = document.get("search")
        document["search"] = {**search, **stated} if isinstance(search, dict) else stated


@contextmanager
def _progress(wanted: bool) -> Iterator[Callable[[int, int], None]]:
    """A progress bar on a terminal, nothing where the output is piped."""
    if not (wanted and sys.stderr.isatty()):
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("designs", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _write_result(folder: Path, result: dict[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "result.json").write_text(json.dumps(result, indent=1, allow_nan=False) + "\n", encoding="utf-8")


@app.command()
def evaluate(
    design: Annotated[str, typer.Argument(help="Chip of the catalogue, or a design file (YAML).")],
    workload: Annotated[Path, typer.Argument(help="Study document whose workload and system are used.")],
    replay: Annotated[
        str | None, typer.Option(help="Trace to replay at its own times, or 'study' for the study's arrivals.")
    ] = None,
    against: Annotated[
        str | None, typer.Option(help="Chip or design file to compare with: where the cost of moving data went.")
    ] = None,
    unrolling: Annotated[
        bool, typer.Option("--unrolling", help="Also the same peak cut into other arrays, as the work grows.")
    ] = False,
    profile: ProfileOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Judge one design or real chip on a workload."""
    with one_line_errors():
        from explorer.evaluation import chip_or_design, evaluate_document
        from explorer.files import read_yaml, with_profile
        from service.tables import print_evaluation

        document = chip_or_design(design, Path()) | {"study": with_profile(read_yaml(workload), profile)}
        if replay is not None:
            document["replay"] = True if replay == "study" else replay
        if against is not None:
            document["against"] = chip_or_design(against, Path())
        if unrolling:
            document["unrolling"] = True
        result = evaluate_document(document, workload.parent)
        print_json(result) if as_json else print_evaluation(result)


@app.command()
def scale(
    design: Annotated[str, typer.Argument(help="Chip of the catalogue, or a design file (YAML).")],
    workload: Annotated[Path, typer.Argument(help="Study document whose workload and node are used.")],
    chips: Annotated[
        list[int] | None, typer.Option(help="Chips of a system; may be repeated. By default from 1 to many nodes.")
    ] = None,
    max_chips: Annotated[int | None, typer.Option(help="Where the default sizes end; 16384 if left out.")] = None,
    profile: ProfileOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Show how a design scales from one chip to many nodes, what binds and where the best plan changes."""
    with one_line_errors():
        from explorer.evaluation import chip_or_design, evaluate_document
        from explorer.files import read_yaml, with_profile
        from service.scaling_tables import print_scaling, scaling_only

        asked = {"chips": chips, "max_chips": max_chips}
        sizes = {name: value for name, value in asked.items() if value is not None} or True
        study = {"study": with_profile(read_yaml(workload), profile), "scaling": sizes}
        result = scaling_only(evaluate_document(chip_or_design(design, Path()) | study, workload.parent))
        print_json(result) if as_json else print_scaling(result)


@app.command()
def explain(
    file: Annotated[Path, typer.Argument(help="Result of explore (JSON), or a study (YAML).")],
    design: Annotated[
        str | None, typer.Option(help="Chip of the catalogue or design file (YAML); by default the recommended design.")
    ] = None,
    trial: Annotated[int | None, typer.Option(help="Design of the result's front, by its trial.")] = None,
    next_budget: Annotated[
        bool, typer.Option("--next-budget", help="Search again with ten percent more area, and power (half a minute).")
    ] = False,
    flip_distance: Annotated[
        bool, typer.Option("--flip-distance", help="How far each technology constant is from another recommendation.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Say why a design does what it does, what binds it and what relief would bring."""
    with one_line_errors():
        from explorer.evaluation import chip_or_design
        from explorer.explanation.asked import Asked, explain_file
        from explorer.files import read_yaml
        from service.explanation_tables import print_explanation

        named = {} if design is None else chip_or_design(design, Path())
        asked = Asked(trial, named.get("chip"), next_budget, flip_distance)
        result = explain_file(read_yaml(file), file.parent, named.get("design"), asked)
        print_json(result) if as_json else print_explanation(result)


@app.command()
def workload(
    file: Annotated[
        Path, typer.Argument(help="Trace (CSV, JSON, JSON lines), GEMM list, layer table, or study (YAML, JSON).")
    ],
    zero_token_rows: Annotated[
        str, typer.Option(help="'drop' leaves out rows without tokens, as failed requests are logged; else 'refuse'.")
    ] = "refuse",
    as_json: JsonFlag = False,
) -> None:
    """Show the shape of a workload before any hardware is chosen."""
    with one_line_errors():
        from explorer.workload_file import inspect_file, read_zero_token_rows
        from service.tables import print_workload

        document = inspect_file(file, read_zero_token_rows(zero_token_rows))
        print_json(document) if as_json else print_workload(document)


bench_app = typer.Typer(invoke_without_command=True, help="Measure speed on this machine.")
app.add_typer(bench_app, name="bench")


@bench_app.callback()
def bench(
    context: typer.Context,
    processes: Annotated[int, typer.Option(help="Processes that evaluate at the same time.")] = 2,
    seconds: Annotated[float, typer.Option(help="Time that each process measures.")] = 5.0,
    as_json: JsonFlag = False,
) -> None:
    """Measure how many designs are judged per second."""
    if context.invoked_subcommand is not None:
        return
    with one_line_errors():
        from explorer.bench import evaluation_speed

        speed = evaluation_speed(processes, seconds)
        if as_json:
            print_json({"evaluation": speed})
        else:
            print(f"{speed['designs_per_s']:.0f} designs/s in {processes} processes, each design at"
                  f" {speed['alternatives_per_design']} alternatives, mixes {', '.join(speed['mixes'])}")  # fmt: skip


@bench_app.command("search")
def bench_search(
    files: Annotated[list[Path], typer.Argument(help="Studies (YAML).")],
    sampler: Annotated[list[str] | None, typer.Option(help="Sampler beside random, or all; may be repeated.")] = None,
    seeds: Annotated[int, typer.Option(help="Runs of each sampler.")] = 10,
    trials: Annotated[list[int] | None, typer.Option(help="Trials to compare at; may be repeated.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Measure how close samplers come to the certified optimum."""
    with one_line_errors():
        from explorer.files import read_yaml
        from explorer.search_bench import BENCHED, BUDGETS, search_quality
        from service.tables import print_search_quality

        studies = {path.stem: (read_yaml(path), path.parent) for path in files}
        tell = lambda line: typer.echo(line, err=True)  # noqa: E731
        rows = search_quality(studies, sampler or BENCHED, seeds, trials or BUDGETS, tell)
        print_json({"search": rows}) if as_json else print_search_quality(rows)


@bench_app.command("history")
def bench_history(
    rows: Annotated[int, typer.Option(help="Designs in the history.")] = 1_000_000,
    database_url: Annotated[
        str, typer.Option(help="Empty database, left empty; a temporary SQLite file by default.")
    ] = "",
    as_json: JsonFlag = False,
) -> None:
    """Measure how fast a large history is written and answers."""
    with one_line_errors():
        from service.history_bench import history_speed

        speed = history_speed(rows, database_url)
        if as_json:
            print_json({"history": speed})
        else:
            print(f"{speed['rows']} designs in {speed['database']}: a page of a filtered, sorted list in"
                  f" {speed['p50_s'] * 1e3:.1f} ms (median), {speed['p95_s'] * 1e3:.1f} ms (p95); any other filter"
                  f" in at most {speed['unindexed_max_s']:.2f} s, a front of a tenth in {speed['pareto_max_s']:.2f} s;"
                  f" {speed['write_rows_per_s']:.0f} designs/s written")  # fmt: skip


@app.command()
def sweep(
    file: Annotated[Path, typer.Argument(help="A study and axes, or a study and a weekly demand (YAML).")],
    as_json: JsonFlag = False,
) -> None:
    """Run a grid of studies, or find the smallest fleet of real chips for a weekly demand."""
    with one_line_errors():
        from explorer.files import read_yaml
        from explorer.fleet import plan_fleet
        from explorer.sweep_run import explore_sweep
        from service.history_tables import print_fleets, print_sweep

        document = read_yaml(file)
        if isinstance(document, dict) and "demand_requests_per_s" in document:
            result = plan_fleet(document, file.parent)
            print_json(result) if as_json else print_fleets(result)
            return
        with _progress(not as_json) as report:
            result = explore_sweep(document, file.parent, report)
        print_json(result) if as_json else print_sweep(result)


@app.command()
def history(
    filter_: Annotated[str, typer.Option("--filter", help='Such as: area_mm2 < 400 and tpot_p95_s <= "50 ms"')] = "",
    order_by: Annotated[str, typer.Option(help="Numeric field, with desc behind it for the largest first.")] = "",
    pareto: Annotated[str, typer.Option(help="Metrics with commas between: only what no other design beats.")] = "",
    near: Annotated[
        list[str] | None, typer.Option(help="name=value of a point; several make it more exact. Nearest first.")
    ] = None,
    facets: Annotated[str, typer.Option(help="Fields with commas between: how the designs spread over them.")] = "",
    limit: Annotated[int, typer.Option(min=1, max=500, help="Most designs shown.")] = 20,
    database_url: Annotated[str, typer.Option(help="Database of the server; the embedded one by default.")] = "",
    as_json: JsonFlag = False,
) -> None:
    """Find designs that any study has looked at."""
    with one_line_errors():
        from service.history_command import find_designs, find_facets
        from service.history_tables import print_designs, print_facets

        if facets:
            found = find_facets(database_url, filter_, facets)
            print_json(found) if as_json else print_facets(found)
            return
        found = find_designs(database_url, filter_, order_by, pareto, tuple(near or ()), limit)
        print_json(found) if as_json else print_designs(found["items"])


@app.command()
def chips(as_json: JsonFlag = False) -> None:
    """List the real chips of the catalogue."""
    with one_line_errors():
        from service.catalogues import chip_documents
        from service.tables import print_chips

        documents = list(chip_documents().values())
        print_json({"items": documents, "next_page_token": None}) if as_json else print_chips(documents)


@app.command()
def networks(as_json: JsonFlag = False) -> None:
    """List the networks of the catalogue."""
    with one_line_errors():
        from service.catalogues import network_documents
        from service.tables import print_networks

        documents = list(network_documents().values())
        print_json({"items": documents, "next_page_token": None}) if as_json else print_networks(documents)


@app.command()
def presets(as_json: JsonFlag = False) -> None:
    """List the named request distributions, precision recipes, samplers and metrics."""
    with one_line_errors():
        from service.catalogues import preset_documents
        from service.tables import print_presets

        document = preset_documents()
        print_json(document) if as_json else print_presets(document)


@app.command()
def validate(
    data: Annotated[
        Path | None, typer.Option(help="Folder of measured tables, searched to any depth; the shipped ones by default.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """
    Compare predictions with measurements.

    A table that breaks a rule is named with file, line, column and rule, and the others are still reported. Exit code
    0 where at least one row could be compared, else 2.
    """
    with one_line_errors():
        from explorer.identity import model_version
        from models.fidelity.validate import SHIPPED, validate
        from service.tables import print_validation

        result = validate(SHIPPED if data is None else (data,))
        document = result.document(model_version())
    print_json(document) if as_json else print_validation(document)
    for each in document["errors"]:
        where = each["file"] if each["line"] is None else f"{each['file']} line {each['line']}"
        print(f"chipfit: {where}: {each['rule']}", file=sys.stderr)
    if not result.rows:
        print("chipfit: no measured row could be compared", file=sys.stderr)
        raise typer.Exit(2)


@app.command()
def calibrate(
    measured: Annotated[Path, typer.Argument(help="Measured times (CSV) with the columns of a measured table.")],
    device: Annotated[
        str | None, typer.Option(help="Chip whose rows are fitted, where the file holds several.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="File for the profile (TOML).")] = None,
    name: Annotated[str | None, typer.Option(help="Name of the profile.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """
    Fit a calibration profile to measured times: at most eight positive constants an operator family.

    Rows that cannot be (faster than the hardware, in another unit) are named by line and left out. Exit code 2 where
    nothing can be fitted.
    """
    with one_line_errors():
        from models.fidelity.calibrate import calibrate as fit
        from models.fidelity.profiles import profile_text
        from service.tables import print_calibration

        report = fit(measured, device, name)
        if out is not None:
            out.write_text(profile_text(report.profile), encoding="utf-8")
        document = report.document()
        print_json(document) if as_json else print_calibration(document)
    for each in document["findings"]:
        where = measured.name if each["line"] is None else f"{measured.name} line {each['line']}"
        print(f"chipfit: {where}: {each['rule']}", file=sys.stderr)


@app.command()
def profiles(as_json: JsonFlag = False) -> None:
    """List the shipped calibration profiles."""
    with one_line_errors():
        from models.fidelity.profiles import profile_document, shipped_profiles
        from service.tables import print_profiles

        documents = [profile_document(each) for each in shipped_profiles().values()]
        print_json({"items": documents, "next_page_token": None}) if as_json else print_profiles(documents)


@app.command()
def amplification(
    model: Annotated[Path, typer.Argument(help="Decoder: a GGUF file, or a folder with safetensors.")],
    out: Annotated[Path | None, typer.Option(help="File for the profile (JSON).")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Measure how strongly rounding each module of a real network moves its output."""
    with one_line_errors():
        from explorer.workload import pointing_at
        from models.precision.amplification import measure_checkpoint
        from models.precision.error import SITES
        from models.precision.profile import profile_document, write_profile
        from service.tables import print_amplification

        with pointing_at("/model"), _progress(not as_json) as report:
            done = iter(range(len(SITES)))
            profile = measure_checkpoint(model, report=lambda site: report(next(done), len(SITES)))
        if out is not None:
            write_profile(profile, out)
        document = profile_document(profile)
        print_json(document) if as_json else print_amplification(document)


@app.command()
def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on; 127.0.0.1 by default.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on; 8080 by default, 0 takes a free one.")] = None,
    database_url: Annotated[str | None, typer.Option(help="Database; SQLite in the data folder by default.")] = None,
    root_path: Annotated[str | None, typer.Option(help="Path prefix under which a proxy serves the API.")] = None,
) -> None:
    """Start API and one worker; beyond loopback callers need a key (`chipfit keys create`)."""
    with one_line_errors():
        from service.real_engine import real_engine
        from service.server import serve as run_server
        from service.settings import read_settings

        stated = {"host": host, "port": port, "database_url": database_url, "root_path": root_path}
        settings = read_settings(**{name: value for name, value in stated.items() if value is not None})
        code = run_server(settings, real_engine())
    raise typer.Exit(code)


@app.command()
def worker(
    database_url: Annotated[
        str, typer.Option(help="Database that the servers use.", envvar="CHIPFIT_DATABASE_URL", show_envvar=True)
    ],
) -> None:
    """Start one more worker."""
    with one_line_errors():
        from service.real_engine import real_engine
        from service.server import run_worker
        from service.settings import read_settings

        code = run_worker(read_settings(database_url=database_url), real_engine())
    raise typer.Exit(code)


@app.command()
def health() -> None:
    """Ask the server of this machine whether it is alive; exit code 1 if it is not."""
    with one_line_errors():
        import httpx

        from service.settings import read_settings

        settings = read_settings()
        try:
            answer = httpx.get(f"http://127.0.0.1:{settings.port}/livez", timeout=4.0)
        except httpx.HTTPError as error:
            print(f"chipfit: no server on port {settings.port}: {error}", file=sys.stderr)
            raise typer.Exit(1) from None
    print(answer.text)
    raise typer.Exit(0 if answer.status_code == 200 else 1)


@app.command()
def backup(
    target: Annotated[Path, typer.Argument(help="File to be made.")],
    database_url: Annotated[str | None, typer.Option(help="Database; the settings' by default.")] = None,
) -> None:
    """Copy the embedded database (SQLite) while it is in use."""
    with one_line_errors():
        from service.backup import back_up
        from service.settings import read_settings

        settings = read_settings(**({} if database_url is None else {"database_url": database_url}))
        back_up(settings.resolved_database_url, target)


@app.command()
def openapi() -> None:
    """Print the API's specification."""
    with one_line_errors():
        from service.app import create_app
        from service.real_engine import real_engine
        from service.settings import Settings

        print_json(create_app(Settings(), real_engine()).openapi())


app.add_typer(key_commands.app, name="keys")


def main() -> None:
    """Entry point of `chipfit`."""
    try:
        app()
    except BrokenPipeError:
        sys.stderr.close()
        raise SystemExit(141) from None


if __name__ == "__main__":
    main()
