"""Names for the procedural family, in two pools that share no identifier.

Some names are English words from two fixed lists, most are spelled from syllables; a syllable word belongs to the
held-out pool when its hash says so. No base word ends in `s`, so plurals cannot collide. Fixed words are the
minority on purpose: a small policy learns frequent ones by heart and then completes an unseen name as a known one.
"""

from __future__ import annotations

import hashlib
import random
from typing import Literal

Split = Literal["train", "held-out"]

TRAIN_WORDS = tuple(
    """
    account alarm answer array badge basket batch beacon bill blade block board bolt branch brick bucket
    budget button cabin cable camera candle card cart cell chain chair channel chart circle clock cloud coin
    column corner count crop cube curve cycle day deck delta depth desk device dial digit door dose draft
    drain drill edge entry error event fabric factor farm fee field file flag flame flight floor folder
    frame fuel game gate gauge goal grade grain graph grid group guest guide habit height hour image index
    item joint kettle key label lamp layer leaf length lesson letter level limit line link loan lock log
    loop machine mail mark meal memo menu metal meter minute model month motor needle night node noise note
    number offer order organ page pair panel part path pattern pedal pencil period phase phone pixel plan
    plate player point pool port price prize probe queue quiz radio rail rank rate ratio record region rent
    report result road rock role roof room root route row rule sale sample scale scene score screen seat
    sensor server shape shelf shift ship sign signal size skill slot song sound speed stack staff stage
    start state step stock store stream street switch table tag tank task team term text theme ticket tile
    time timer title token tool topic total track trade train trip truck unit user value view visit volume
    wage wave week weight wheel width window word worker year zone
    """.split()  # noqa: SIM905  (a table of words is easier to read)
)
HELD_OUT_WORDS = tuple(
    """
    acorn anchor apron arrow autumn bamboo barrel beetle blanket bottle bridge bubble canal canyon captain
    castle cello cherry cliff comet copper coral cradle crayon creek crown dagger desert dragon eagle ember
    engine falcon feather fiddle forest fountain galaxy garden glacier granite hammer harbor helmet hotel
    island jacket jungle kitten ladder lagoon lantern lemon lobster magnet mango marble meadow mirror
    mountain nickel orchard otter oven paddle palace parrot pebble pepper piano pigeon pillow planet plum
    puzzle rabbit raven ribbon river rocket saddle salmon sandal shadow silver spider spoon squirrel stable
    statue sugar summer sunset temple thunder tiger timber tower trumpet tulip tunnel turtle valley velvet
    violin volcano walnut willow winter yacht
    """.split()  # noqa: SIM905  (a table of words is easier to read)
)
TRAIN_VERBS = tuple(
    """
    add apply build calc change check clean clear close copy cut drop fetch fill find fix get give join keep
    load make measure merge move pack parse pick place pull push put read reduce save scan score send shift show
    solve split store swap take total trim turn update wrap
    """.split()  # noqa: SIM905
)
HELD_OUT_VERBS = ("assess", "blend", "collect", "derive", "gather", "juggle", "resolve", "tally")

COMMON = ("x", "v", "i", "n", "out", "res")
"""Loop and result names that both pools use, as all code does."""

ONSETS = tuple(
    """
    b c d f g h j k l m n p r s t v w z br ch cl cr dr fl fr gl gr pl pr sc sh sl sm sp st sw th tr
    """.split()  # noqa: SIM905
)
NUCLEI = tuple("a e i o u a e i o u ai ea ee ie oo ou".split())  # noqa: SIM905
CODAS = ("", "", "", "n", "r", "l", "t", "nt", "rt", "ck", "st", "ng", "m", "p", "rd", "x", "ry", "er", "y")

TAKEN = frozenset(
    """
    abs aiter all and anext any append ascii assert async await bin bool break bytearray bytes callable case
    chr class compile complex continue copyright credits def del delattr dict dir divmod elif else enumerate
    eval except exec exit filter finally float for format from frozenset getattr global globals hasattr hash
    help hex import input int iter lambda len license list locals map match max min next nonlocal not object
    oct open ord pass pow print property quit raise range repr return reverse reversed round run set setattr
    slice sorted str sum super test try tuple type vars while with yield zip
    """.split()  # noqa: SIM905
)
"""Keywords, builtins and words of the harness that no name may be. Written out: interpreters differ, tasks must not."""

RESERVED = TAKEN.union(TRAIN_WORDS, HELD_OUT_WORDS, TRAIN_VERBS, HELD_OUT_VERBS)
"""What a made-up word may not be by accident."""


def in_held_out_pool(text: str) -> bool:
    """Whether a key belongs to the held-out fifth: a fixed hash, the same in every process."""
    return hashlib.sha256(text.encode()).digest()[0] % 5 == 0


def syllable_word(rng: random.Random, split: Split) -> str:
    """A pronounceable made-up word of 3 to 9 letters from the pool of `split`."""
    while True:
        parts = [rng.choice(ONSETS) + rng.choice(NUCLEI) + rng.choice(CODAS) for _ in range(rng.randint(1, 2))]
        word = "".join(parts)
        if 3 <= len(word) <= 9 and word not in RESERVED and in_held_out_pool(word) == (split == "held-out"):
            return word


def sample_words(rng: random.Random, split: Split, count: int) -> list[str]:
    """`count` different words of the split, about a third English and the rest made up."""
    pool = TRAIN_WORDS if split == "train" else HELD_OUT_WORDS
    words = rng.sample(pool, count)
    for position in range(count):
        word = syllable_word(rng, split)
        if rng.random() < 0.7 and word not in words:
            words[position] = word
    return words


def sample_verb(rng: random.Random, split: Split) -> str:
    return rng.choice(TRAIN_VERBS if split == "train" else HELD_OUT_VERBS)
