"""Panels, variables and dashboards as these pages have them, by the builders of Grafana's SDK."""

from collections.abc import Sequence
from typing import NamedTuple

from grafana_foundation_sdk.builders import common, dashboard, prometheus, stat, table, timeseries
from grafana_foundation_sdk.models.common import (
    BigValueColorMode,
    BigValueGraphMode,
    LegendDisplayMode,
    LegendPlacement,
    StackingMode,
    TooltipDisplayMode,
)
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    DashboardLinkType,
    DataSourceRef,
    DataTransformerConfig,
    DynamicConfigValue,
    Threshold,
    ThresholdsMode,
    VariableHide,
    VariableRefresh,
    VariableSort,
)
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

DATA = DataSourceRef(type_val="prometheus", uid="${datasource}")
TAG = "latencyprobe"
OVERVIEW, OBJECTIVE, STAGES, AGENTS = (f"{TAG}-{page}" for page in ("overview", "objective", "stages", "agents"))


class Query(NamedTuple):
    """An expression, and what its series are called. `min_step`: for windows so long that finer steps cost much;
    `exemplars`: its histograms' exemplars are drawn too, those of the same histograms by one query of a chart."""

    expr: str
    legend: str = ""
    min_step: str = ""
    exemplars: bool = False


class Column(NamedTuple):
    """A column of figures in a table."""

    title: str
    unit: str
    expr: str
    decimals: int | None = None


def chart(
    title: str,
    unit: str,
    *queries: Query,
    told: str,
    width: int = 12,
    stacked: StackingMode | None = None,
    at_most: float | None = None,
) -> timeseries.Panel:
    """Return lines over time. `told`: what they are, and how to read them."""
    if any(query.exemplars for query in queries):
        told += " Diamonds are single RPCs, each with a link to its trace (docs/dashboards.md)."
    panel = (
        timeseries.Panel()
        .title(title)
        .description(told)
        .datasource(DATA)
        .unit(unit)
        .min(0)
        .no_value("none")
        .span(width)
        .height(8)
        .fill_opacity(60 if stacked else 8)
        .legend(
            common.VizLegendOptions()
            .show_legend(True)
            .display_mode(LegendDisplayMode.LIST)
            .placement(LegendPlacement.BOTTOM)
        )
        .tooltip(common.VizTooltipOptions().mode(TooltipDisplayMode.MULTI))
    )
    if at_most is not None:
        panel.max(at_most)
    if stacked:
        panel.stacking(common.StackingConfig().mode(stacked).group("A"))
    for index, query in enumerate(queries):
        panel.with_target(_target(index, query).range())
    return panel


def dashed(panel: timeseries.Panel, series: str) -> timeseries.Panel:
    """Draw the series of that name as a dashed red line: a limit."""
    style = {"fill": "dash", "dash": [8, 8]}
    red = {"mode": "fixed", "fixedColor": "red"}
    properties = [("custom.lineStyle", style), ("custom.fillOpacity", 0), ("color", red)]
    return panel.override_by_name(series, [DynamicConfigValue(id_val=name, value=value) for name, value in properties])


def tile(
    title: str, unit: str, expr: str, *, told: str, width: int = 4, steps: Sequence[tuple[float | None, str]] = ()
) -> stat.Panel:
    """Return one figure. `steps`: from which value on it has which colour; the first from None."""
    panel = (
        stat.Panel()
        .title(title)
        .description(told)
        .datasource(DATA)
        .unit(unit)
        .no_value("–")
        .span(width)
        .height(4)
        .graph_mode(BigValueGraphMode.NONE)
        .color_mode(BigValueColorMode.VALUE if steps else BigValueColorMode.NONE)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
        .with_target(_target(0, Query(expr)).instant())
    )
    colours = [Threshold(value=value, color=colour) for value, colour in steps or [(None, "text")]]
    return panel.thresholds(dashboard.ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(colours))


def rows(title: str, labels: dict[str, str], columns: Sequence[Column], *, told: str, link: str = "") -> table.Panel:
    """Return a table of series: their labels (with what these are called) and a column for each expression.

    `link`: where the last label leads to."""
    panel = table.Panel().title(title).description(told).datasource(DATA).no_value("–").span(24).height(9)
    order = {label: index for index, label in enumerate(labels)}
    called = dict(labels)
    for index, column in enumerate(columns):
        target = _target(index, Query(column.expr)).instant().format(PromQueryFormat.TABLE)
        panel.with_target(target)
        value = f"Value #{_ref(index)}"
        called[value] = column.title
        order[value] = len(order)
        properties = [DynamicConfigValue(id_val="unit", value=column.unit)]
        if column.decimals is not None:
            properties.append(DynamicConfigValue(id_val="decimals", value=column.decimals))
        panel.override_by_name(column.title, properties)
    if link:
        properties = [DynamicConfigValue(id_val="links", value=[{"title": "Open", "url": link}])]
        panel.override_by_name(list(labels.values())[-1], properties)
    arranged = {"excludeByName": {"Time": True}, "indexByName": order, "renameByName": called}
    return panel.with_transformation(DataTransformerConfig(id_val="merge", options={})).with_transformation(
        DataTransformerConfig(id_val="organize", options=arranged)
    )


def data_source() -> dashboard.DatasourceVariable:
    """Return the variable by which all queries find their Prometheus."""
    return dashboard.DatasourceVariable("datasource").label("Prometheus").type("prometheus")


def of_label(name: str, series: str, label: str, *, everything: bool = False) -> dashboard.QueryVariable:
    """Return a variable whose values are those of a label. `everything`: several may be chosen, at first all are."""
    variable = _variable(name, f"label_values({series}, {label})").label(name.capitalize())
    return variable.multi(True).include_all(True).all_value(".*") if everything else variable


def of_answer(name: str, expr: str, pattern: str) -> dashboard.QueryVariable:
    """Return a hidden variable that is what a query answers."""
    return _variable(name, f"query_result({expr})").regex(pattern).hide(VariableHide.HIDE_VARIABLE)


def page(
    uid: str, title: str, told: str, variables: Sequence[dashboard.QueryVariable], panels: Sequence[object]
) -> dashboard.Dashboard:
    """Return a dashboard: rows (as text) and panels, in this order."""
    built = (
        dashboard.Dashboard(f"LatencyProbe / {title}")
        .uid(uid)
        .description(told)
        .tags([TAG])
        .time("now-3h", "now")
        .refresh("1m")
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .with_variable(data_source())
    )
    for variable in variables:
        built.with_variable(variable)
    others = dashboard.DashboardLink("LatencyProbe").type(DashboardLinkType.DASHBOARDS).tags([TAG])
    built.link(others.as_dropdown(True).include_vars(True).keep_time(True))
    for panel in panels:
        built.with_row(dashboard.Row(panel)) if isinstance(panel, str) else built.with_panel(panel)
    return built


def _variable(name: str, query: str) -> dashboard.QueryVariable:
    return (
        dashboard.QueryVariable(name)
        .datasource(DATA)
        .query({"query": query, "refId": name})
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(VariableSort.ALPHABETICAL_ASC)
    )


def _target(index: int, query: Query) -> prometheus.Dataquery:
    target = prometheus.Dataquery().ref_id(_ref(index)).expr(query.expr).datasource(DATA)
    if query.legend:
        target.legend_format(query.legend)
    if query.min_step:
        target.interval(query.min_step)
    if query.exemplars:
        target.exemplar(True)
    return target


def _ref(index: int) -> str:
    return chr(ord("A") + index)
