"""The report for people: what was run, what came out, and how far it may be trusted."""

from collections.abc import Iterable, Mapping, Sequence

from fedat_service.wire.settings import Method
from loadtest.experiments.claims import Verdict, judge
from loadtest.experiments.communication import communication_table
from loadtest.experiments.experiment import Expectation
from loadtest.experiments.notes import to_notes
from loadtest.experiments.outcome import Outcome
from loadtest.experiments.quantities import QUANTITIES, Ratios, Spread
from loadtest.experiments.tables import header, row

_HEADER_LINES = 2

Figures = Mapping[str, Iterable[str]]
"""By experiment: the file names of its figures."""


def to_markdown(outcome: Outcome, figures: Iterable[str]) -> str:
    """Write the report of one experiment.

    Args:
        outcome: What came out of it.
        figures: File names beside the report.
    """
    return _join(
        f"# {outcome.experiment.heading}",
        *_sections(outcome, figures, "##"),
        "## How to read this",
        to_notes([outcome]),
    )


def compare_in_markdown(outcomes: Sequence[Outcome], figures: Figures) -> str:
    """Write the report of several experiments, one after the other.

    Args:
        outcomes: What came out of them.
        figures: File names beside the report, by experiment.
    """
    overview = [
        "| experiment | methods | does its claim show? |",
        "|---|---|---|",
        *(
            f"| {one.experiment.named_heading} | {', '.join(one.summaries)} | {_in_a_word(judge(one))} |"
            for one in outcomes
        ),
    ]
    blocks = [
        block
        for one in outcomes
        for block in (
            f"## {one.experiment.named_heading}",
            *_sections(one, figures[one.experiment.name], "###"),
        )
    ]
    return _join(
        f"# {', '.join(one.experiment.name for one in outcomes)}: {_seeds(outcomes[0])}",
        "\n".join(overview),
        *blocks,
        "## How to read this",
        to_notes(outcomes),
    )


def results_table(outcome: Outcome) -> str:
    """All quantities of an experiment's methods: a table in Markdown."""
    target = f"{outcome.experiment.target_accuracy:g}"
    lines = header("", outcome.summaries)
    for name, quantity in QUANTITIES.items():
        cells = [
            outcome.spread(method, name).text(quantity.form, quantity.missing) for method in outcome.runs
        ]
        lines.append(row(quantity.label.format(target=target), cells))
    return "\n".join(lines)


def _sections(outcome: Outcome, figures: Iterable[str], level: str) -> list[str]:
    verdicts = judge(outcome)
    return [
        _conditions(outcome),
        f"{level} Results",
        "\n".join(f"- **{_speedup(outcome, *one)}.**" for one in outcome.speedups.items()),
        results_table(outcome),
        _tier_table(outcome),
        communication_table(outcome),
        *([f"{level} Claim", _claim(outcome, verdicts)] if outcome.experiment.claim or verdicts else []),
        *([f"{level} Beside the paper", _paper_table(outcome)] if outcome.experiment.paper else []),
        f"{level} Figures",
        "\n\n".join(f"![{_caption(name)}]({name})" for name in figures),
    ]


def _conditions(outcome: Outcome) -> str:
    one = outcome.experiment
    pace = (
        "in virtual time, service and clients in one process"
        if outcome.virtual
        else f"at {one.rate:g} simulated seconds a second, on real HTTP between real processes"
    )
    return (
        f"{one.num_clients} clients hold {one.data}, split as `{one.partition}`, "
        f"and keep {100 * one.test_fraction:.3g} % of it for evaluation; "
        f"{one.num_unstable} of them drop out for good at a random time. "
        f"A round takes a client {one.compute_s:g} s of simulated work and then a latency of the model "
        f"`{one.latency}`. Tiered methods have {one.num_tiers} tiers, and every cohort has up to "
        f"{one.cohort_size} clients. Clients train the model `{one.model}`"
        f"{', its layers in bfloat16' if one.bfloat16 else ''}: "
        f"{'; '.join(_training(outcome))}. "
        f"Each method ran {one.horizon_s:g} simulated seconds {pace}, with {_seeds(outcome)}."
        f"{''.join(_shorter(outcome))}"
    )


def _shorter(outcome: Outcome) -> Iterable[str]:
    """What ran less than the others: more local work in a round is as many steps in less time."""
    for name in outcome.runs:
        horizon_s = outcome.experiment.horizon_of(name)
        if horizon_s < outcome.experiment.horizon_s:
            yield f" {name} ran {horizon_s:g} of them."


def _seeds(outcome: Outcome) -> str:
    word = "seed" if len(outcome.seeds) == 1 else "seeds"
    return f"{word} {', '.join(map(str, outcome.seeds))}"


def _training(outcome: Outcome) -> Iterable[str]:
    """What clients do, and after each thing who does it, unless all do."""
    for describe in (_solver, _proximal_term, _codec):
        by_text: dict[str, list[str]] = {}
        for name in outcome.runs:
            by_text.setdefault(describe(outcome.experiment.method_of(name)), []).append(name)
        for text, names in by_text.items():
            who = "" if len(by_text) == 1 else f" ({', '.join(names)})"
            yield f"{text}{who}"


def _solver(method: Method) -> str:
    one = method.solver
    count, unit = (one.epochs, "epoch") if one.steps is None else (one.steps, "step")
    return (
        f"{one.name}, learning rate {one.lr:g}, {count} {unit}{'s' if count > 1 else ''} of {one.batch_size}"
    )


def _proximal_term(method: Method) -> str:
    return f"proximal term {method.solver.prox_mu:g}"


def _codec(method: Method) -> str:
    one = method.codec
    detail = {"polyline": f" with {one.precision} decimals", "qsgd": f" with {one.levels} levels"}
    return f"sent as {one.name}{detail.get(one.name, '')}"


def _speedup(outcome: Outcome, name: str, times: Ratios) -> str:
    """Over the seeds where both reached the target; without any, who did at all."""
    reference, seeds = outcome.experiment.reference, len(outcome.seeds)
    goal = f"accuracy {outcome.experiment.target_accuracy:g}"
    own, other = (outcome.spread(one, "time_to_target_s").known for one in (reference, name))
    if times.known:
        where = f", over the seeds where both did: {len(times.known)} of {seeds} "
        who = f"({reference} did with {len(own)}, {name} with {len(other)})"
        return _pace(goal, reference, name, times) + (where + who if len(times.known) < seeds else "")
    if not own:
        return f"{reference} did not reach {goal}: no speed-up over {name} can be stated"
    reached = f"{reference} reached {goal}{f' with {len(own)} of {seeds} seeds,' if seeds > 1 else ''}"
    if other:
        return f"{reached} {name} with {len(other)}, and with no seed both: no speed-up can be stated"
    simulated_s = max(one.simulated_s for one in outcome.summaries[name])
    return (
        f"{reached} after {Spread(tuple(own)).text('.0f')} simulated seconds; "
        f"{name} did not within {simulated_s:.0f}"
    )


def _pace(goal: str, first: str, second: str, times: Ratios) -> str:
    """Never "0.9 times less": the slower one is named as the slower one."""
    if (times.mean or 0.0) < 1:
        first, second, times = second, first, times.inverse
    factor, low, high = (f"{value:.1f}" for value in (times.mean, times.min, times.max))
    pace = (
        "about the same simulated time as" if factor == "1.0" else f"{factor} times less simulated time than"
    )
    extremes = "" if low == high else f" (geometric mean; {low} to {high} times less by seed)"
    return f"{first} reached {goal} in {pace} {second}{extremes}"


def _tier_table(outcome: Outcome) -> str:
    """Who took part: rounds of each tier, their share, and what its model weighs in the end."""
    tiered = {name: ones for name, ones in outcome.summaries.items() if len(ones[0].tier_update_counts) > 1}
    if not tiered:
        return ""
    num_tiers = max(len(ones[0].tier_update_counts) for ones in tiered.values())
    lines = header(
        "rounds closed (and their share), fastest first", (f"tier {m + 1}" for m in range(num_tiers))
    )
    for name, ones in tiered.items():
        counts = _means(one.tier_update_counts for one in ones)
        total = sum(counts) or 1.0
        lines.append(row(name, [f"{count:.0f} ({count / total:.0%})" for count in counts]))
        if outcome.experiment.method_of(name).participation.name == "fedat":
            weights = _means(one.tier_weights for one in ones)
            lines.append(row(f"{name}: share in the last model", [f"{one:.3f}" for one in weights]))
    over = "" if len(outcome.seeds) == 1 else "\n\nTiers are means over the seeds."
    return "\n".join(lines) + over


def _means(rows: Iterable[Sequence[float]]) -> list[float]:
    columns = list(zip(*rows, strict=True))
    return [sum(column) / len(column) for column in columns]


def _claim(outcome: Outcome, verdicts: Sequence[Verdict]) -> str:
    lines = [f"- {_verdict(outcome, one)}" for one in verdicts]
    return _join(outcome.experiment.claim, f"**{_in_words(verdicts)}**", "\n".join(lines))


def _in_words(verdicts: Sequence[Verdict]) -> str:
    held = sum(one.holds for one in verdicts)
    if not verdicts:
        return "Nothing of it was checked in these runs."
    if held == len(verdicts):
        return "It shows in these runs."
    return f"It does not show in these runs: {held} of {len(verdicts)} expectations hold with every seed."


def _in_a_word(verdicts: Sequence[Verdict]) -> str:
    held = sum(one.holds for one in verdicts)
    word = "not checked" if not verdicts else "yes" if held == len(verdicts) else "no"
    return f"{word}: {held} of {len(verdicts)} expectations" if verdicts else word


def _verdict(outcome: Outcome, one: Verdict) -> str:
    expected = one.expectation
    label = QUANTITIES[expected.quantity].label.format(target=f"{outcome.experiment.target_accuracy:g}")
    shows = f"shows with {sum(one.shows)} of {len(one.shows)} seeds"
    word = "holds" if one.holds else "does not hold"
    return (
        f"{label}: {expected.method} {_bound(expected)} times {one.other}: **{word}**; {shows} "
        f"(ratios {', '.join(one.ratios)})"
    )


def _bound(expected: Expectation) -> str:
    if expected.at_most is not None:
        return f"at most {expected.at_most:g}"
    return f"at least {expected.at_least:g}"


def _paper_table(outcome: Outcome) -> str:
    paper = outcome.experiment.paper
    if paper is None:
        return ""
    target = f"{outcome.experiment.target_accuracy:g}"
    lines = header("ours / the paper's", outcome.runs)
    for quantity, printed in paper.values.items():
        rule = QUANTITIES[quantity]
        ours = {name: outcome.spread(name, quantity).text(rule.form, rule.missing) for name in outcome.runs}
        lines.append(row(rule.label.format(target=target), _beside(ours, printed)))
    for quantity, printed in paper.ratios.items():
        label = QUANTITIES[quantity].label.format(target=target)
        ours = {name: outcome.ratio(name, quantity).text(".2f", "unknown") for name in outcome.runs}
        lines.append(row(f"{label}, times that of {outcome.experiment.reference}", _beside(ours, printed)))
    return _join(paper.table + ".", "\n".join(lines) if len(lines) > _HEADER_LINES else "", paper.note)


def _beside(ours: Mapping[str, str], printed: Mapping[str, float]) -> list[str]:
    return [
        f"{value} / {printed[name]:g}" if name in printed else f"{value} / -" for name, value in ours.items()
    ]


def _join(*blocks: str) -> str:
    return "\n\n".join(block.rstrip("\n") for block in blocks if block) + "\n"


def _caption(name: str) -> str:
    return name.rpartition("/")[2].removesuffix(".png").replace("-", " ")
