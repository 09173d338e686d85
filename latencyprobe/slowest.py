"""The commands that show single RPCs: slow, explain."""

import time

import click

from latencyprobe import sources
from latencyprobe.errors import ReportError
from latencyprobe.options import OUTPUT
from latencyprobe.output import figures_console, utf_8
from latencyprobe.report import exchanges, explain, explanation, explanation_table, table, units, words
from latencyprobe.report.explanation import Explanation
from latencyprobe.sources import Found, Source

_LINKING = "html"
_AT_MOST = click.IntRange(1)


@click.command(
    epilog="""\b
Examples:
  latencyprobe slow                            on this host
  latencyprobe slow -n shop --target cart
  latencyprobe slow --since 5m --limit 3
  latencyprobe slow --peer shop/frontend
  latencyprobe slow -o json | jq -r .traceId
"""
)
@sources.options
@sources.SINCE
@sources.TARGET
@sources.PEER
@click.option("--limit", type=_AT_MOST, help="Print so many at most.")
@OUTPUT
def slow(
    *,
    namespace: str | None,
    all_namespaces: bool,
    store: str | None,
    since: int | None,
    target: str | None,
    peer: str | None,
    limit: int | None,
    output: str,
) -> None:
    """Print the slowest RPCs, their stages, what explains them, whom they waited for, and the trace ids of both."""
    if output != "table":
        utf_8()
    source = Source.of(namespace, all_namespaces, store)
    read = source.read(since)
    _tell(read)
    reports = sources.chosen(read.reports, target, peer)
    age = read.age(reports, int(time.time()))
    from_ns = time.time_ns() - since * 10**9 if since else 0
    found = [one for one in words.slowest_of(reports) if units.unix_ns(one.slow.time) >= from_ns][:limit]
    if output == "json":
        for one in found:
            click.echo(exchanges.document(one))
    elif found:
        exchanges.render(found, figures_console(), titled=source.all_namespaces or len(reports) > 1)
        if age.text:
            figures_console().print(table.of_age(age))
    elif not reports:
        click.echo(words.NO_REPORT)
    elif read.since_s and sources.without_rpcs(reports):
        click.echo(age.sentence)
    elif since:
        back, asked = units.time_span(since), source.asked_again("report")
        counted = asked if source.of_cluster else f"{asked} --since {back}"
        click.echo(f"None of the slowest RPCs of each hour began within the last {back}: `{counted}` counts all RPCs.")
    else:
        click.echo("No RPC was recorded yet: send traffic to a target while LatencyProbe measures.")


@click.command(
    name="explain",
    epilog="""\b
Examples:
  latencyprobe explain                         an RPC of this host that was slow as most of the worst objective
  latencyprobe explain 4bf92f35                by the beginning of its trace id, as `slow` prints it
  latencyprobe explain -n shop --target cart   one of this target
  latencyprobe explain -n shop --peer frontend --since 15m
  latencyprobe explain -n shop 4bf92f35 -o json
  latencyprobe explain -n shop -o html --trace-url 'http://jaeger:16686/trace/{traceId}' > slow.html
                                               as a page, for a browser or a mail
""",
)
@sources.options
@sources.SINCE
@sources.TARGET
@sources.PEER
@click.option("-o", "--output", type=click.Choice(["table", "json", "html"]), default="table", show_default=True)
@sources.trace_url(_LINKING)
@click.argument("trace", required=False, default="")
def explain_(
    *,
    namespace: str | None,
    all_namespaces: bool,
    store: str | None,
    since: int | None,
    target: str | None,
    peer: str | None,
    output: str,
    trace_url: str,
    trace: str,
) -> None:
    """Show one slow RPC: its stages on one axis, what explains them, and what shows more."""
    source = Source.of(namespace, all_namespaces, store)
    if trace_url and output != _LINKING:
        raise click.UsageError(sources.without_links(_LINKING), click.get_current_context())
    if output != "table":
        utf_8()
    read = source.read(since)
    _tell(read)
    every = read.reports
    from_ns = time.time_ns() - since * 10**9 if since else 0
    reports = sources.chosen(every, target, peer)
    listed = explain.listed(reports, from_ns)
    found = explain.find(listed, trace.lower())
    traces = dict.fromkeys(one.slow.trace_id for one in found)
    if not found:
        back = units.time_span(since) if since else ""
        raise ReportError(explain.nothing(reports, listed, trace, back, source.asked_again("slow")))
    if trace and len(traces) > 1:
        raise ReportError(f"{trace!r} begins {len(traces)} trace ids: give more of one: {', '.join(list(traces)[:5])}")
    chosen = found[0] if trace else explain.typical(listed)
    ends = explain.ends(explain.listed(every), chosen)  # the other end's target or peer is another one
    if output == "json":
        for one in ends:
            click.echo(exchanges.document(one))
        return
    asked = source.asked_again("explain") + (f" --since {units.time_span(since)}" if since else "")
    told = explanation.explanation(
        ends,
        asked,
        {one.slow.trace_id for one in explain.listed(every, from_ns)},
        titled=source.all_namespaces or len(every) > 1,
        said="" if trace else explain.slower(listed[0].slow, chosen.slow, asked),
    )
    _print(told, output, trace_url)


def _tell(read: Found) -> None:
    for said in read.said:
        click.echo(f"latencyprobe: {said}", err=True)


def _print(told: Explanation, output: str, trace_url: str) -> None:
    if output == "html":
        from latencyprobe.report import html  # noqa: PLC0415 - jinja2 takes 40 ms that no other form needs

        click.echo(html.explained(told, trace_url), nl=False)
    else:
        explanation_table.render(told, figures_console())
