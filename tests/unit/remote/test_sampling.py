"""Drawn tokens: what a setting leaves in, how likely it makes it, and engines that do otherwise."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import pytest
import torch

from inferproof.core.quality import SamplerSetting
from inferproof.core.serving_facts import SamplerFacts
from inferproof.gates.sampler import ignored, unread
from inferproof_remote.serving.client import Answer, Completion, Refused, Request
from inferproof_remote.serving.features import Features
from inferproof_remote.serving.prompts import Windows
from inferproof_remote.serving.sampling import Sampled, Setting, settings_of
from inferproof_remote.stream import Stream
from unit.remote.test_audit import END, VOCABULARY, YARDSTICKS, Counting
from unit.remote.test_fidelity import CORPUS

TOKENS = 160
ROW = torch.tensor([0.4, 0.3, 0.15, 0.1, 0.05]).log()
SETTINGS = (
    SamplerSetting(temperature=2.0),
    SamplerSetting(top_k=1),
    SamplerSetting(top_p=0.5),
    SamplerSetting(min_p=0.2),
)


@pytest.mark.parametrize(
    ("setting", "kept"),
    [
        (Setting(temperature=1.0), 5),
        (Setting(temperature=1.0, top_k=2), 2),
        (Setting(temperature=1.0, top_k=99), 5),
        (Setting(temperature=1.0, top_p=0.4), 2),  # the token that crosses stays
        (Setting(temperature=1.0, top_p=0.69), 2),
        (Setting(temperature=1.0, top_p=0.71), 3),
        (Setting(temperature=1.0, min_p=0.5), 2),
        (Setting(temperature=1.0, min_p=0.2, top_k=3), 3),
    ],
)
def test_a_setting_leaves_in_what_its_definition_says(setting: Setting, kept: int) -> None:
    chances = setting.chances(ROW)
    assert int((chances > -torch.inf).sum()) == kept
    assert float(chances.exp().sum()) == pytest.approx(1)
    assert [setting.allows(ROW, token, 1e-6) for token in range(5)] == [
        token < kept for token in range(5)
    ]


def test_a_tie_with_the_last_that_is_left_in_is_allowed() -> None:
    setting = Setting(temperature=1.0, top_k=1)
    assert setting.allows(ROW, 1, 0.3)
    assert not setting.allows(ROW, 2, 0.3)


def test_a_higher_temperature_flattens() -> None:
    chances = Setting(temperature=2.0).chances(ROW)
    expected = [math.sqrt(p) for p in (0.4, 0.3, 0.15, 0.1, 0.05)]
    assert float(chances[0].exp()) == pytest.approx(expected[0] / sum(expected))


@dataclass
class Sampler:
    """Draws as it is asked to, but for the parameters that it ignores."""

    ignores: tuple[str, ...] = ()
    refuses_zeros: bool = False
    draws: int = 0

    def complete(self, request: Request) -> Answer:
        if self.refuses_zeros and (request.top_k == 0 or request.min_p == 0):
            return Refused("no such field")
        asked = {
            "temperature": request.temperature,
            "top_k": request.top_k or None,
            "top_p": request.top_p if request.top_p < 1 else None,
            "min_p": request.min_p or None,
        }
        asked |= {name: 1.0 if name == "temperature" else None for name in self.ignores}
        setting = Setting(**asked)  # pyright: ignore[reportArgumentType]
        made = [*map(int, request.prompt)]
        for _ in range(request.max_tokens):
            row = Counting().logprobs(made[-1:])[-1].clone()
            row[END] = -torch.inf
            self.draws += 1
            place = Stream(b"sampler", f"{self.draws}").below(1 << 30) / (1 << 30)
            chances = setting.chances(row).exp().cumsum(-1)
            made.append(int((chances <= place).sum().clamp(max=len(row) - 1)))
        ids = tuple(made[len(request.prompt) :])
        return Completion(text=VOCABULARY.decode(ids), finish_reason="length", token_ids=ids)

    def complete_together(self, requests: Sequence[Request]) -> list[Answer]:
        return [self.complete(each) for each in requests]

    def complete_amid(self, running: Sequence[Request], late: Request) -> list[Answer]:
        return self.complete_together([*running, late])


TELLS = Features(id_prompts=True, token_ids=True, ignore_eos=True)


def measured(engine: Sampler, setting: SamplerSetting, features: Features = TELLS) -> SamplerFacts:
    """Return what `engine` draws at a setting."""
    written = setting.model_dump(mode="json")
    (_, asked), *_ = settings_of({"settings": [written]})
    sampled = Sampled(
        engine=engine,
        features=features,
        windows=Windows(CORPUS, VOCABULARY),
        yardsticks=YARDSTICKS,
        stream=Stream(b"bits", "sampler"),
        tie_nats=0.3,
    )
    return SamplerFacts.model_validate({"setting": written, **sampled.measure(asked, TOKENS)})


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda each: each.words)
def test_an_engine_that_obeys_is_not_accused(setting: SamplerSetting) -> None:
    facts = measured(Sampler(), setting)
    assert len(facts.outside) == facts.asked == TOKENS
    assert ignored(facts) == ("", "")
    assert unread(facts, TOKENS) == ""


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda each: each.words)
def test_an_ignored_parameter_is_named(setting: SamplerSetting) -> None:
    named = setting.cuts or ("temperature",)
    facts = measured(Sampler(ignores=named), setting)
    assert ignored(facts)[0] == named[0]


def test_fields_that_say_off_are_left_out_where_they_are_refused() -> None:
    facts = measured(Sampler(refuses_zeros=True), SETTINGS[0])
    assert facts.failed == 0
    assert len(facts.outside) == TOKENS


@dataclass
class Ender(Sampler):
    """Draws ends of text too, and stops there; `says_ends` more often than they would come."""

    end_chance: float = 0.0
    shows_ids: bool = True

    def complete(self, request: Request) -> Answer:
        whole = super().complete(request)
        assert isinstance(whole, Completion)
        assert whole.token_ids
        made, before = list[int](), int(request.prompt[-1])
        for token in whole.token_ids:
            self.draws += 1
            row = Counting().logprobs([before])[-1]
            place = Stream(b"ender", f"{self.draws}").below(1 << 30) / (1 << 30)
            if place < max(self.end_chance, float(row[END].exp())):
                break
            made.append(token)
            before = token
        ids = tuple(made)
        return Completion(
            text=VOCABULARY.decode(ids),
            finish_reason="length" if len(ids) == request.max_tokens else "stop",
            token_ids=ids if self.shows_ids else None,
        )


@pytest.mark.parametrize("shows_ids", [True, False])
def test_an_engine_that_ends_where_texts_end_is_asked_on_and_read_whole(shows_ids: bool) -> None:
    features = Features(id_prompts=True, token_ids=shows_ids)
    facts = measured(Ender(shows_ids=shows_ids), SamplerSetting(), features)
    assert len(facts.outside) + facts.ends == facts.asked >= TOKENS
    assert facts.ends > 5
    assert ignored(facts) == ("", "")
    assert unread(facts, TOKENS) == ""


@pytest.mark.parametrize("shows_ids", [True, False])
def test_an_engine_that_ends_so_as_to_say_little_is_named(shows_ids: bool) -> None:
    features = Features(id_prompts=True, token_ids=shows_ids)
    facts = measured(Ender(end_chance=0.5, shows_ids=shows_ids), SamplerSetting(), features)
    assert ignored(facts)[0] == "the distribution"


def test_an_early_end_of_an_engine_that_can_go_on_is_unread() -> None:
    facts = measured(Ender(), SamplerSetting())
    assert unread(facts, TOKENS)
