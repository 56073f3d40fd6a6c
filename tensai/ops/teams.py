"""How rows are shared out among lanes: a team of lanes a row, several teams a workgroup.

A row is so many units of one element, or of four that lie side by side where its length allows
it. A normalization's team holds its row in named variables, so that it is read once.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ..operation import Job

LANES = 256


class Team(NamedTuple):
    """Lanes that share a row, and the units that each can hold."""

    lanes: int
    units: int

    @property
    def room(self) -> int:
        return self.lanes * self.units


# The first with room for a row takes it. Few lanes with several units each are fastest: up to 32
# lanes join within a subgroup, and what a lane has on its way at a time hides the memory's latency.
HOLDING = (Team(8, 1), Team(8, 4), *(Team(8 << doubled, 8) for doubled in range(8)))
# The last walks over rows of any length.
WALKING = (Team(8, 16), Team(16, 16), Team(64, 16), Team(256, 0))


def row_units(length: int) -> tuple[int, bool]:
    """Units in a row, and whether they are vectors."""
    vector = length % 4 == 0
    return (length // 4 if vector else length), vector


def holding(length: int) -> Team | None:
    """The team that holds a row of `length`, or None for a row too long."""
    units, _ = row_units(length)
    return next((team for team in HOLDING if team.room >= units), None)


def fits_holding(job: Job, length: int) -> bool:
    """Whether a team holds a row of `length` on the job's device."""
    team = holding(length)
    return team is not None and team.lanes <= job.device.limits["maxComputeInvocationsPerWorkgroup"]


def walking(units: int) -> Team:
    """The team that walks over rows of so many units."""
    return next((team for team in WALKING if team.room >= units), WALKING[-1])


def team_values(team: Team, vector: bool, subgroup: bool, element: str = "f32") -> dict[str, Any]:
    """The template values of team.wgsl and of kernels that use it."""
    lanes = max(LANES, team.lanes)
    return {
        "TEAM": team.lanes,
        "TEAM_2": team.lanes * 2,
        "TEAM_3": team.lanes * 3,
        "TEAM_4": team.lanes * 4,
        "LANES": lanes,
        "ROWS": lanes // team.lanes,
        "SUBGROUP": subgroup,
        "VECTOR": vector,
        "SHARED": element,
        "UNIT": f"vec4<{element}>" if vector else element,
    }


def lines(team: Team, pattern: str) -> str:
    """A line for each unit that a lane holds: `{i}` is its number, `{at}` its place from the
    lane's first."""
    return "\n".join("    " + pattern.format(i=i, at=i * team.lanes) for i in range(team.units))


def pairwise(team: Team, term: str, join: str) -> str:
    """One expression of a term for each unit, joined two at a time by `join` of {a} and {b}."""
    terms = [term.format(i=i) for i in range(team.units)]
    while len(terms) > 1:
        joined = [join.format(a=a, b=b) for a, b in zip(terms[::2], terms[1::2], strict=False)]
        terms = joined + terms[len(joined) * 2 :]
    return terms[0]


def held(team: Team) -> dict[str, str]:
    """The lines that read a lane's units into unit_0, unit_1, ... from at_0, at_1, ..."""
    return {
        "DECLARE": lines(team, "let at_{i} = member + {at}u;"),
        "LOAD": lines(team, "var unit_{i} = nothing;")
        + "\n"
        + lines(team, "if (at_{i} < units) {{ unit_{i} = x[base + at_{i}]; }}"),
    }


def stored(team: Team, value: str) -> str:
    """The lines that write `value` of each unit."""
    return lines(team, f"if (at_{{i}} < units) {{{{ out[base + at_{{i}}] = {value}; }}}}")


def holding_loops(team: Team) -> int:
    """Iterations of a lane that joins two values with its team's."""
    return 2 * (team.lanes.bit_length() + team.lanes // 4)


def probed_lengths() -> list[int]:
    """A length of rows for each team, in vectors and in single elements, all but full."""
    return [length for team in HOLDING for length in (4 * (team.room - 1), team.room - 1)]
