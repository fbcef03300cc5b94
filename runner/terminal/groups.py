"""`nightshift group`: the progress of a group of jobs, and its best results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from runner import clock
from runner.api import groups
from runner.errors import UserError
from runner.sweep.metrics import last_values, parse_metric
from runner.sweep.results import ran_s
from runner.sweep.sweep_options import metric_in, parse_at_most
from runner.terminal.session import AS_JSON, group_names, open_queue, print_json, say
from runner.text import words
from runner.text.table import Row, print_table

if TYPE_CHECKING:
    from runner.api import Queue
    from runner.api.groups import Results, Standing

LISTED = 20


@click.command("group")
@click.argument("name", metavar="[NAME]", required=False, shell_complete=group_names)
@click.option("--csv", "as_csv", is_flag=True, help="Print the results for a spreadsheet.")
@AS_JSON
@click.option("--at-most", metavar="M", help="From now on, run at most M at a time; none for no limit.")
@click.option("--metric", metavar="val_loss", help="Compare jobs by this number in their output.")
@click.option("--smallest", is_flag=True, help="The smallest is best.")
@click.option("--largest", is_flag=True, help="The largest is best.")
def group(name: str | None, as_csv: bool, as_json: bool, **changes: Any) -> None:
    """Show the progress and the results of a group of jobs, best first. Without a name, list the latest groups.

    A sweep is a group, and so are jobs submitted with the same --group. For --metric, give the name of the number as
    the job prints it, or a pattern.
    """
    changes = _changes(**changes)
    with open_queue() as queue:
        if name is None:
            if changes or as_csv:
                raise UserError("Which group? `nightshift group` lists them.")
            _print_all(queue, as_json)
            return
        if changes:
            answer = groups.change(queue, name, changes)
            if not (as_csv or as_json):
                print(answer)
        standing, results = groups.standing(queue, name), _results(queue, name)
        if results.trouble:
            say(words.printable(results.trouble))
        if as_json:
            print_json(_described(standing, results))
        elif as_csv:
            print(groups.as_csv(results), end="")
        else:
            _print(standing, results)


def _changes(at_most: str | None, metric: str | None, smallest: bool, largest: bool) -> dict[str, Any]:
    values: dict[str, Any] = {"smallest": smallest, "largest": largest}
    values |= {"metric": parse_metric(metric)} if metric is not None else {}
    chosen = metric_in(values)
    return ({"metric": chosen} if chosen else {}) | ({"at_most": parse_at_most(at_most)} if at_most is not None else {})


def _results(queue: Queue, name: str) -> Results:
    jobs, metric = groups.members(queue, name), groups.Metric.from_json(groups.find(queue, name).metric)
    numbers = last_values(groups.folders(queue, jobs), metric.pattern) if metric else groups.MetricValues({})
    return groups.compared(jobs, numbers.values, metric, numbers.trouble)


def _print_all(queue: Queue, as_json: bool) -> None:
    standings = [groups.standing(queue, name) for name in queue.groups.latest(-1 if as_json else LISTED)]
    if as_json:
        print_json([_summary(standing) for standing in standings])
        return
    for standing in standings:
        print(standing.line)
    if not standings:
        print('There are no groups. A sweep makes one: nightshift sweep "python train.py --lr {lr}" -p lr 0.1 0.01')


def _summary(standing: Standing) -> dict[str, Any]:
    group = standing.group
    return {
        "group": group.name,
        "owner": group.owner,
        "at_most": group.at_most,
        "command": group.command,
        "parameters": group.parameters,
        "metric": group.metric,
        "counts": {state.value: count for state, count in standing.counts.items()},
        "left_s": standing.left_s,
    }


def _described(standing: Standing, results: Results) -> dict[str, Any]:
    now, best = clock.now(), results.best
    jobs = [
        {
            "id": row.job.id,
            "parameters": row.job.spec.parameters,
            "value": row.number,
            "state": row.job.state.value,
            "reason": row.job.reason.value if row.job.reason else None,
            "seconds": ran_s(row.job, now),
            "command": row.job.spec.command,
        }
        for row in results.rows
    ]
    return {**_summary(standing), "best": best.job.id if best else None, "jobs": jobs}


def _print(standing: Standing, results: Results) -> None:
    print(words.printable(standing.line))
    if standing.group.command:
        print(words.printable(standing.group.command))
    if best := groups.best_words(results):
        print(words.printable(f"{best} (the {results.metric.best if results.metric else ''} is best)"))
    elif results.metric:
        print(f"No job has printed {words.printable(results.metric.name)} so far.")
    if results.rows:
        print()
        _print_table(results)


def _print_table(results: Results) -> None:
    names, now = results.names, clock.now()
    metric = [results.metric.name] if results.metric else []
    rows = []
    for row in results.rows:
        values = row.job.spec.parameters
        cells = [str(row.job.id), *(words.printable(values.get(name, "–")) for name in names)]
        cells += [row.value.text if row.value else ""] if metric else []
        cells += [words.state_words(row.job), words.duration_words(row.job, now)]
        cells += [] if names else [words.title(row.job)]
        rows.append(Row(cells, {len(names) + len(metric) + 1: words.colour(row.job.state)}))
    headers = [*map(words.printable, ["ID", *names, *metric]), "STATE", "TIME", *([] if names else ["JOB"])]
    cut = range(1, 1 + len(names)) if names else [len(headers) - 1]
    print_table(headers, rows, cut=cut, right=(0, len(names) + len(metric) + 2))
