"""What to try next, by Optuna's TPE sampler; the study is rebuilt from the record each time.

The record is the storage: nothing else has to survive, and what proposes cannot forget a trial
that failed. The same record gives the same proposals.
"""

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from inferproof.core.errors import UsageError
from inferproof.core.space import (
    Choice,
    Parameter,
    Setting,
    Space,
    choices_of,
    is_asked,
    is_same,
)

if TYPE_CHECKING:
    import optuna
    from optuna.distributions import BaseDistribution

_ASKS_EACH = 25
_MOST_LISTED = 10_000
_LEAST_RANDOM, _MOST_RANDOM = 4, 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """One configuration whose outcome is known; without a score it must not be tried again."""

    settings: Mapping[str, Setting]
    score: float | None


def defaults_of(space: Space, own: Mapping[str, Setting]) -> Space:
    """Return the space with the contract's own options as its defaults."""
    changed: dict[str, Parameter] = {}
    for name, parameter in space.parameters.items():
        own_value = own.get(name, parameter.default)
        values = parameter.values
        if values and own_value is not None and not any(is_same(own_value, v) for v in values):
            values = (own_value, *values)
        changed[name] = parameter.model_copy(update={"default": own_value, "values": values})
    return space.model_copy(update={"parameters": changed})


def propose(
    space: Space, known: Sequence[Known], count: int, *, seed: int, planned: int
) -> tuple[dict[str, Setting], ...]:
    """Return up to `count` settings that nobody tried; fewer when the space has no more.

    `planned` is how many the whole search has: a share of them is drawn at random first.

    Raises:
        UsageError: Optuna is not installed here.
    """
    study = _study(seed, random=min(_MOST_RANDOM, max(_LEAST_RANDOM, planned // 3)))
    seen = {_key(_chosen_defaults(space))}
    for each in known:
        choice = _rebuilt(space, each.settings)
        if choice is not None:
            seen.add(_key(choice))
            _tell(study, space, choice, each.score)
    found: list[dict[str, Setting]] = []
    for choice in _asked(study, space, _ASKS_EACH * count):
        if len(found) == count:
            break
        if _key(choice) not in seen:
            seen.add(_key(choice))
            found.append({name: value for name, value in choice.items() if value is not None})
    return tuple(found)


def _asked(study: "optuna.Study", space: Space, count: int) -> Iterator[Choice]:
    """Yield what the sampler wants to try; at last whatever is left, where the space is small."""
    for _ in range(count):
        yield _suggested(study.ask(), space)
    yield from choices_of(space, _MOST_LISTED) or ()


def _study(seed: int, *, random: int) -> "optuna.Study":
    try:
        import optuna  # a third of a second, and only search needs it
    except ImportError as error:
        raise UsageError(
            "Optuna, which proposes configurations, is not installed here",
            hint="run: pip install 'inferproof[search]'",
        ) from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        sampler = optuna.samplers.TPESampler(
            seed=seed,
            n_startup_trials=random,
            multivariate=True,
            group=True,
            constant_liar=True,
        )
    return optuna.create_study(direction="maximize", sampler=sampler)


def _tell(study: "optuna.Study", space: Space, choice: Choice, score: float | None) -> None:
    """Tell an outcome; one without a score counts as worse than all others."""
    from optuna.trial import TrialState, create_trial

    state = TrialState.PRUNED if score is None else TrialState.COMPLETE
    study.add_trial(
        create_trial(
            state=state,
            value=None if score is None else math.log(score),
            params=choice,
            distributions={name: _distribution(space.parameters[name]) for name in choice},
        )
    )


def _distribution(parameter: Parameter) -> "BaseDistribution":
    from optuna import distributions

    if parameter.range is None:
        return distributions.CategoricalDistribution(parameter.choices)
    low, high = parameter.range
    is_log = parameter.scale == "log"
    if isinstance(low, int) and isinstance(high, int):
        return distributions.IntDistribution(low, high, log=is_log)
    return distributions.FloatDistribution(low, high, log=is_log)


def _suggested(trial: "optuna.Trial", space: Space) -> Choice:
    choice: Choice = {}
    for name, parameter in space.parameters.items():
        if not is_asked(parameter, choice):
            continue
        if parameter.range is None:
            choice[name] = trial.suggest_categorical(name, parameter.choices)
            continue
        low, high = parameter.range
        is_log = parameter.scale == "log"
        if isinstance(low, int) and isinstance(high, int):
            choice[name] = trial.suggest_int(name, low, high, log=is_log)
        else:
            choice[name] = trial.suggest_float(name, low, high, log=is_log)
    return choice


def _chosen_defaults(space: Space) -> Choice:
    choice: Choice = {}
    for name, parameter in space.parameters.items():
        if is_asked(parameter, choice):
            choice[name] = parameter.default
    return choice


def _rebuilt(space: Space, settings: Mapping[str, Setting]) -> Choice | None:
    """Return recorded settings as a choice in the present space; None if they are none of it."""
    choice: Choice = {}
    for name, parameter in space.parameters.items():
        if not is_asked(parameter, choice):
            continue
        value = settings.get(name)
        if not _is_in(parameter, value):
            return None
        choice[name] = value
    return choice if set(settings) <= set(choice) else None


def _is_in(parameter: Parameter, value: Setting | None) -> bool:
    if parameter.range is None:
        return any(is_same(value, each) for each in parameter.choices)
    low, high = parameter.range
    return isinstance(value, int | float) and low <= value <= high


def _key(choice: Choice) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((name, repr(value)) for name, value in choice.items()))
