import pytest

from runner.batch import Accumulation, BatchSettings, accumulate, budget_mib
from runner.errors import UserError


@pytest.mark.parametrize(
    ("batch", "rounded"),
    [(1, 1), (7, 7), (13, 13), (63, 63), (64, 64), (67, 64), (71, 68), (70, 68), (79, 76), (238, 232), (4095, 4088)],
)
def test_rounding_begins_at_64_and_costs_no_more_than_a_twentieth(batch, rounded):
    assert BatchSettings().rounded(batch) == rounded


def test_a_profile_may_round_everything():
    strict = BatchSettings(round_from=8, round_loss=1.0)
    assert [strict.rounded(batch) for batch in (5, 8, 15, 29)] == [5, 8, 8, 24]


@pytest.mark.parametrize(
    "wrong", [{"margin": 0.0}, {"margin": 1.5}, {"default": 0}, {"cap": 0}, {"limit_s": 1.0}, {"own": 0}]
)
def test_settings_that_make_no_sense_are_refused(wrong):
    with pytest.raises(UserError, match=next(iter(wrong))):
        BatchSettings(**wrong)


def test_settings_go_through_json():
    settings = BatchSettings(margin=0.9, own=4)
    assert BatchSettings.from_json({**settings.to_json(), "newer": 1}) == settings


def test_the_budget_is_a_slots_share_and_no_more_than_is_free():
    assert budget_mib(24_564, 400, 0) == 24_164
    assert budget_mib(24_564, 400, 0, slots=2) == 12_082
    assert budget_mib(24_564, 400, 12_000, slots=2) == 12_082
    assert budget_mib(24_564, 400, 20_000, slots=2) == 4_164
    assert budget_mib(24_564, 400, 30_000) == 0


@pytest.mark.parametrize(
    ("batch", "wanted", "gpus", "expected"),
    [
        (24, 480, 1, Accumulation(24, 20)),
        (24, 22, 1, Accumulation(22, 1)),
        (24, 500, 1, Accumulation(20, 25)),  # exact, for a sixth of the batch
        (24, 512, 1, Accumulation(23, 22)),  # 506: exact would cost a third
        (24, 480, 4, Accumulation(24, 5)),
        (1, 7, 1, Accumulation(1, 7)),
    ],
)
def test_accumulation_comes_near_what_was_wanted(batch, wanted, gpus, expected):
    made = accumulate(batch, wanted, gpus)
    assert made == expected
    assert made.batch <= batch
