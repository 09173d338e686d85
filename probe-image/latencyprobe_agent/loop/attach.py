"""Brings the control's plan, and the cgroups of its pods, into the kernel; knows what is in force."""

import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path

from latencyprobe.errors import Unsupported
from latencyprobe.plan import NodePlan
from latencyprobe.variants import LACKING, USER_STACKS
from latencyprobe_agent.config import Config
from latencyprobe_agent.identity.cgroups import Cgroup
from latencyprobe_agent.identity.folders import PodFolders
from latencyprobe_agent.identity.resources import PodResources, ProcessResources, Resources
from latencyprobe_agent.kernel.hooks import cannot_look_into_processes
from latencyprobe_agent.kernel.programs import Programs
from latencyprobe_agent.loop.control import Control
from latencyprobe_agent.loop.http2 import Http2
from latencyprobe_agent.measure.rules import NO_RULES, Rules, compile_rules, followed_in
from latencyprobe_agent.measure.turn import InForce

_log = logging.getLogger(__name__)


class Attachment:
    """`in_force`: None before the first plan. `http2`: attached as the plan asks.

    `named`: somebody makes spans, on which stacks have names.
    """

    def __init__(
        self, programs: Programs, http2: Http2, config: Config, control: Control, *, named: bool = True
    ) -> None:
        self.in_force: InForce | None = None
        self._refused: Unsupported | None = None
        self._programs = programs
        self.http2 = http2
        self._config = config
        self._control = control
        self._folders = PodFolders(config.cgroup_root, config.survey_interval_s)
        self._cgroups: Mapping[int, Cgroup] = {}
        self._named = named
        self._no_user_stacks = cannot_look_into_processes(Path("/proc/self/status").read_text())

    @property
    def problem(self) -> Unsupported | None:
        """Why the control's latest plan is not in force, or in vain, if so."""
        return self._refused or self._folders.problem

    @property
    def variants(self) -> Mapping[str, str]:
        """Return the variants of HTTP/2, and LACKING for stacks of programs that the plan asks for, and that this
        agent cannot name."""
        asked = self.in_force and any(one.waits.user_stacks for one in self.in_force.rules.in_force.values())
        return {**self.http2.variants, **({USER_STACKS: LACKING} if asked and self._no_user_stacks else {})}

    @property
    def plan_age_s(self) -> float:
        """Seconds since the control last confirmed its plan."""
        return self._control.plan_age_s()

    def follow(self, before: Callable[[], object] = lambda: None) -> None:
        """Put the control's plan in force, if it or the cgroups of its pods have changed.

        `before` is called when that is about to happen: what was counted so far counts for the plan so far.
        Raises Unsupported where there is no cgroup v2 tree.
        """
        plan = self._control.plan()
        if plan is None:
            return
        cgroups = {} if plan.host else self._folders.scan()
        last = self.in_force
        if last is not None and plan is last.plan and cgroups == self._cgroups:
            return
        resources, pods = self._resources(plan, cgroups)
        if last is not None and plan is last.plan:
            rules = followed_in(last.rules, plan, pods)
        else:
            rules = compile_rules(plan, pods, last.rules if last else NO_RULES)
        if not self.http2.ready(rules, wait=last is None):
            return  # the plan so far stays in force
        before()
        try:
            self._apply(plan, rules, cgroups, plan.idle_timeout_ns)
        except Unsupported as error:
            if self._refused is None or str(error) != str(self._refused):
                _log.error("%s; measuring continues with the plan before", error)
            self._refused = error
            return
        for target, reason in rules.refused.items():
            if last is None or target not in last.rules.refused:  # reasons say how much others ask for, which moves
                _log.error("target %s is not measured: %s", target, reason)
        if last is None or plan != last.plan:
            _log.info("plan in force", extra={"generation": plan.generation, "targets": len(plan.targets)})
        self._refused, self._cgroups, self.in_force = None, cgroups, InForce(plan, rules, resources)

    def end_open_exchanges(self) -> None:
        """Let the next flush end what is complete, without an idle timeout: nothing is waited for any more."""
        if self.in_force is not None:
            self._apply(self.in_force.plan, self.in_force.rules, self._cgroups, 0)

    def _resources(self, plan: NodePlan, cgroups: Mapping[int, Cgroup]) -> tuple[Resources, Mapping[str, list[int]]]:
        """Return who owns what is counted, and the cgroup ids of each pod (by uid)."""
        last = self.in_force.resources if self.in_force else None
        if plan.host:
            return last or ProcessResources(plan.node), {}
        pods = PodResources(plan, cgroups, last if isinstance(last, PodResources) else None)
        found = pods.pod_cgroups()
        self._folders.found(plan, found)
        return pods, found

    def _apply(self, plan: NodePlan, rules: Rules, cgroups: Mapping[int, Cgroup], idle_timeout_ns: int) -> None:
        own = os.getpid() if plan.host else 0  # in a pod our cgroup is in no scope, and our number another one
        self._programs.apply(
            rules,
            idle_timeout_ns=idle_timeout_ns,
            own_tgid=own,
            owner_by_process=plan.host,
            records_per_second=self._config.records_per_second,
            user_stacks=self._named and not self._no_user_stacks,
            http2=self.http2.attached,
            own_cgroups=[number for number, one in cgroups.items() if one.pod == self._config.pod_uid],
        )
        self.http2.detach(rules)
