"""The report for people: what was run, what came out, and how far it may be trusted."""

from collections.abc import Iterable, Mapping

from loadtest.experiments.results import FINAL_SHARE, SMOOTHING, Summary
from loadtest.experiments.settings import ExperimentSettings

_FLOAT32_BYTES = 4
_LATE_WARNING = 0.05


def to_markdown(
    settings: ExperimentSettings,
    methods: Mapping[str, Summary],
    speedups: Mapping[str, float | None],
    figures: Iterable[str],
) -> str:
    """Write the report.

    Args:
        settings: What was run.
        methods: One summary a method.
        speedups: How many times less simulated time FedAT took to the target than each other method.
        figures: File names beside the report.
    """
    sections = [
        f"# {' and '.join(methods)} on {settings.data}",
        _conditions(settings),
        "## Results",
        "\n".join(_speedup_lines(settings, methods, speedups)),
        _table(settings, methods),
        _tier_lines(methods),
        "## Figures",
        "\n\n".join(f"![{_caption(name)}]({name})" for name in figures),
        "## How to read this",
        "\n".join(f"- {note}" for note in _notes(settings, methods)),
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def _conditions(settings: ExperimentSettings) -> str:
    return (
        f"{settings.num_clients} clients hold {settings.data}, split as `{settings.partition}`; "
        f"{settings.num_unstable} of them drop out for good at a random time. "
        f"A round takes a client {settings.compute_s:g} s of simulated work and then a latency of the model "
        f"`{settings.latency}`. Tiered methods have {settings.num_tiers} tiers, and every cohort has up to "
        f"{settings.cohort_size} clients. The model `{settings.model}` is trained by Adam at a learning "
        f"rate of {settings.lr:g} in {settings.epochs} epochs of batches of {settings.batch_size}; tiered "
        f"methods add a proximal term of {settings.prox_mu:g}. "
        f"Each method ran {settings.horizon_s:g} simulated seconds at "
        f"{settings.rate:g} simulated seconds a second, on real HTTP between real processes, with seed "
        f"{settings.seed}."
    )


def _speedup_lines(
    settings: ExperimentSettings, methods: Mapping[str, Summary], speedups: Mapping[str, float | None]
) -> Iterable[str]:
    target = f"{settings.target_accuracy:g}"
    for name, times in speedups.items():
        if times is not None:
            # Never "0.9 times less": the slower one is named as the slower one.
            first, second, factor = ("fedat", name, times) if times >= 1 else (name, "fedat", 1 / times)
            yield (
                f"**{first} reached accuracy {target} in {factor:.1f} times less simulated time than "
                f"{second}.**"
            )
        elif (reached_s := methods["fedat"].time_to_target_s) is not None:
            yield (
                f"**fedat reached accuracy {target} after {reached_s:.0f} simulated seconds; {name} did not "
                f"within {methods[name].simulated_s:.0f}.**"
            )
        else:
            yield f"**fedat did not reach accuracy {target}: no speed-up over {name} can be stated.**"


def _table(settings: ExperimentSettings, methods: Mapping[str, Summary]) -> str:
    rows: list[tuple[str, list[str]]] = [
        (
            f"simulated time to accuracy {settings.target_accuracy:g} (s)",
            [_number(one.time_to_target_s, ".1f", "not reached") for one in methods.values()],
        ),
        ("final accuracy", [_number(one.final_accuracy, ".4f") for one in methods.values()]),
        ("... mean of so many evaluations", [str(one.final_evaluations) for one in methods.values()]),
        ("best accuracy", [_number(one.best_accuracy, ".4f") for one in methods.values()]),
        (
            "variance of accuracy over clients",
            [_number(one.client_accuracy_variance, ".4f") for one in methods.values()],
        ),
        ("global versions", [str(one.versions) for one in methods.values()]),
        ("client updates", [str(one.updates) for one in methods.values()]),
        ("payload up (MB)", [_megabytes(one.bytes_up.payload) for one in methods.values()]),
        ("on the wire up (MB)", [_megabytes(one.bytes_up.wire) for one in methods.values()]),
        ("on the wire down (MB)", [_megabytes(one.bytes_down.wire) for one in methods.values()]),
        (
            "on the wire to the target, both ways (MB)",
            [
                "not reached"
                if one.bytes_to_target is None
                else _megabytes(sum(one.bytes_to_target.values()))
                for one in methods.values()
            ],
        ),
        (
            "payload bytes a parameter, up",
            [_number(one.bytes_per_parameter_up, ".3f") for one in methods.values()],
        ),
        ("clients lost at the end", [str(one.lost_clients) for one in methods.values()]),
        ("real time (s)", [_number(one.wall_s, ".1f") for one in methods.values()]),
    ]
    lines = [f"| | {' | '.join(methods)} |", "|---|" + "---|" * len(methods)]
    return "\n".join(lines + [f"| {label} | {' | '.join(cells)} |" for label, cells in rows])


def _tier_lines(methods: Mapping[str, Summary]) -> str:
    lines = []
    for name, one in methods.items():
        if len(one.tier_update_counts) > 1:
            counts = ", ".join(map(str, one.tier_update_counts))
            weights = ", ".join(f"{weight:.3f}" for weight in one.tier_weights)
            lines.append(
                f"Tiers of {name}, fastest first: rounds closed {counts}; share in the global model at the "
                f"end {weights}."
            )
    return "\n".join(lines)


def _notes(settings: ExperimentSettings, methods: Mapping[str, Summary]) -> Iterable[str]:
    yield (
        "All numbers come from this one run. Cohorts, data and simulated latencies follow from the seed; "
        "real processes add their own time, so that another run of the same seed differs a little. One seed "
        "says nothing about the spread over seeds."
    )
    yield (
        f"Time to target: when the centred mean of {SMOOTHING} consecutive evaluations first is at or above "
        "the target, at the time the middle version was published; the same for every method. Time starts "
        "when all clients have registered, so that a tiered method's profiling is part of it."
    )
    yield (
        f"Final accuracy and variance: mean over the evaluations of the last {FINAL_SHARE:.0%} of the "
        "simulated time. Accuracy is the sample-weighted mean over the clients' own test splits."
    )
    yield from _compression_notes(methods)
    yield (
        "Bytes of training are those of the tiers: what clients fetched for a round and sent back. Profiling "
        "and the observer that evaluates versions are counted apart (`bytes_outside_tiers` in report.json). "
        "Bytes at a point of a curve charge each update the mean of its method's messages."
    )
    yield from _late_notes(settings, methods)


def _compression_notes(methods: Mapping[str, Summary]) -> Iterable[str]:
    for name, one in methods.items():
        size = one.bytes_per_parameter_up
        if size is None:
            continue
        note = f"{name}: an update's payload has {size:.2f} bytes a parameter"
        yield (
            f"{note}."
            if size >= _FLOAT32_BYTES
            else f"{note}, {_FLOAT32_BYTES / size:.2f} times less than float32."
        )


def _late_notes(settings: ExperimentSettings, methods: Mapping[str, Summary]) -> Iterable[str]:
    for name, one in methods.items():
        if one.late_share is None:
            continue
        note = (
            f"{name}: in {one.late_share:.1%} of the client rounds the real work took longer than the "
            "simulated latency."
        )
        if one.late_share > _LATE_WARNING:
            note += f" That stretches its simulated times: run again with a rate below {settings.rate:g}."
        yield note


def _caption(name: str) -> str:
    return name.removesuffix(".png").replace("-", " ")


def _megabytes(num_bytes: float) -> str:
    return f"{num_bytes / 1e6:.2f}"


def _number(value: float | None, form: str, missing: str = "none") -> str:
    return missing if value is None else format(value, form)
