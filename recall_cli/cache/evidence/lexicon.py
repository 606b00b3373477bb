"""One written word -> what it means for a comparison: canonical tokens, their weight, what kind it is.

Canonical: lower case without accents, singular, no -ing or -ed where a known word remains, American
spelling, the head of its synonyms; contractions are opened ("can't" -> can, not). All of it is
remembered by written word, so a text costs a dictionary look-up a word.

Weight: how much of a text a word stands for, 0..1. The bundled vocabulary is ordered by frequency, and
by Zipf's law the r-th word has frequency proportional to 1/r: the weight is r / (r + HALF), which is
the smooth inverse frequency that the bundled embedder uses. A word that the vocabulary does not hold
(a name, a code, a typing error, another language) weighs 1: the most that any word can.

The lists are ours, from everyday request English. Synonyms may stand for one another without changing what is asked:
a missing pair costs a hit, a wrong pair could cost a false one, so a word with two readings is left out. Opposites and
negators turn a question round; they are in canonical form, and tests check their symmetry.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from typing import NamedTuple


def listed(words: str) -> frozenset[str]:
    """Return the words of a list written as prose: a line is read, a column of quotes is not."""
    return frozenset(words.split())


def in_order(words: str, separator: str | None = None) -> list[str]:
    """Return the words of a list written as prose, in their order."""
    return words.split(separator)


_GROUPS = """
get obtain receive acquire
begin start commence
finish complete conclude
buy purchase
cost price fee charge
big large huge
small little tiny
fast quick quickly rapid rapidly
fastest quickest
faster quicker
biggest largest
bigger larger
nearest closest
nearer closer
greatest highest
cheap inexpensive affordable
help assist assistance aid
fix repair resolve mend
delete remove erase
change modify alter update edit amend
show display
find locate
choose select pick
allow permit
need require must
confirm verify
create make build
place location
refund reimbursement
timetable schedule
trip journey
luggage baggage
company firm
employee worker staff
salary wage
bill invoice
parcel package
delivery shipping
near nearby
maximum max
minimum min
folder directory
repository repo
database db
application app
configuration config
mail email
register enroll enrol
info information detail
explain describe clarify
advantage benefit
disadvantage drawback downside
medicine medication
dose dosage
ill sick
lawyer attorney
rich wealthy
wrong incorrect
right correct
hard difficult
easy simple
broken faulty defective
lost missing
quit resign
hire recruit
rent lease
house home
kid child
film movie
photo picture image
shop store
holiday vacation
flat apartment
car automobile
doctor physician
phone telephone
enable activate
disable deactivate
increase raise
decrease reduce lower
late overdue
often frequently
immediately instantly
allowed permitted
forbidden prohibited banned
send submit
request ask
reply respond response answer
keep retain
join combine
error fault
maybe perhaps
usually normally typically generally
"""

_FILLERS = """
please thanks thank hi hello hey kindly could would can may might should shall tell know want like wonder possible
able way exactly just really actually also sorry question wish try let someone somebody anyone there here advise advice
ok okay well so then step thing go going give say need must get be do have
a an the of and in to is as for on with that it by at from you i my me your we our us this they or which who what when
where why how if any some about
usually normally um uh er erm hmm ah oh team
"""


def _heads() -> dict[str, str]:
    heads: dict[str, str] = {}
    for line in _GROUPS.split("\n"):
        words = line.split()
        for word in words:
            heads[word] = words[0]
    return heads


HEADS = _heads()
"""Word to the one that stands for its group."""

MEMBERS: dict[str, tuple[str, ...]] = {
    head: (head, *(word for word, its_head in HEADS.items() if its_head == head and word != head))
    for head in dict.fromkeys(HEADS.values())
}
"""Head to all the words of its group."""

FILLERS = listed(_FILLERS)
"""Words that carry courtesy or grammar, not what is asked for."""


NEGATORS = listed(
    "not no never without cannot neither nor none nothing nobody nowhere except excluding unless unable avoid non"
)
"""Words that deny what stands beside them; `n't` is read as `not`."""

# "|" parts words that exclude one another; one line, one scale.
_SCALES = """
on | off
enable | disable
increase | decrease fall drop
grow | shrink fall drop
rise | fall drop
more | less | fewer
most | least | fewest
max | min
maximum | minimum
before | after
buy | sell
cheap | expensive
cheaper | pricier
cheapest | priciest dearest
open | close closed shut
add | delete
include | exclude
cover | exclude
spicy | mild
allow | forbid ban prohibit refuse forbidden
allowed | forbidden
accept | reject decline refuse
pass | fail
win | lose
lend | borrow
import | export
upload | download
deposit | withdraw
arrive | depart leave
arrival | departure
incoming | outgoing
inbound | outbound
internal | external
indoor | outdoor
public | private
first | last
next coming upcoming | previous last
early | late
earlier | later
earliest | latest
old | new
oldest | newest
older | newer
hot | cold
warm | cool
high | low
higher | lower
highest | lowest
long | short
longer | shorter
longest | shortest
big | small
bigger | smaller
biggest | smallest
fast | slow
faster | slower
fastest | slowest
best | worst
better | worse
good | bad
right | wrong
true | false
yes | no
left | right
up | down
above | below under
over | under
inside | outside
front | back
top | bottom
start | end stop finish
begin | end stop finish
always | never
with | without
all | none
both | neither
today | tomorrow | yesterday
weekday | weekend
morning | evening | afternoon
past | future coming
man | woman
male | female
husband | wife
son | daughter
mother | father
brother | sister
boy | girl
adult | child
junior | senior
single | married | divorced
full | part
full | empty
part | whole
single | double
single | return
domestic | international
online | offline
import | export
input | output
push | pull
encrypt | decrypt
compress | decompress extract
mount | unmount
ascending | descending
positive | negative
advantage | disadvantage
pro | con
safe | unsafe dangerous
strong | weak
easy | hard
rich | poor
hire | fire
employer | employee
landlord | tenant
buyer | seller
lender | borrower
sender | recipient receiver
credit | debit
income | expense
profit | loss
gain | lose
save | spend
asset | liability
gross | net
fixed | variable
permanent | temporary
optional | mandatory compulsory
legal | illegal
paid | unpaid free
join | leave
follow | unfollow
subscribe | unsubscribe
lock | unlock
block | unblock
freeze | unfreeze
freeze | thaw
install | uninstall
sync | unsync
north | south | east | west
northern | southern | eastern | western
summer | winter | spring | autumn
breakfast | lunch | dinner
"""

PARTICLES = frozenset({"on", "off", "up", "down", "in", "out"})
"""Poles that are prepositions too: "turn on X on my phone" is turned round though "on" stays."""

KEPT = 1 << 16
"""Words remembered before the memory starts afresh."""

PREFIXES = ("un", "dis", "de", "in", "im", "ir", "il", "non", "mis")
"""What makes the opposite of a word that also stands alone: lock and unlock, active and inactive."""


def _opposites() -> dict[str, frozenset[str]]:
    found: dict[str, set[str]] = {}
    for line in _SCALES.strip().split("\n"):
        poles = [part.split() for part in line.split("|")]
        for i, pole in enumerate(poles):
            others = {word for j, other in enumerate(poles) if j != i for word in other}
            for word in pole:
                found.setdefault(word, set()).update(others)
    return {word: frozenset(others) for word, others in found.items()}


OPPOSITES = _opposites()
"""Word to the words that contradict it; symmetric."""


class _Bare(dict[str, str]):
    """Word to what is left without a prefix that turns it round, "" when there is none; filled on demand."""

    def __missing__(self, word: str) -> str:
        left = ""
        for prefix in PREFIXES:
            if word.startswith(prefix) and len(word) >= len(prefix) + 4:
                left = word[len(prefix) :]
                break
        if len(self) >= KEPT:
            self.clear()
        self[word] = left
        return left


BARE = _Bare()


HALF = 900.0
"""The rank at which a word weighs half: a/p(r) with the embedder's a = 1e-4 and p(r) = 1 / (11 r)."""

FILLER_WEIGHT = 0.03
"""What a word of courtesy or grammar weighs: something, so that texts of nothing else can still differ."""

NUMBER, CAPITAL, NEGATION, POLE, ROLE, KEY, PAST, FUTURE, GOING = 1, 2, 4, 8, 16, 32, 64, 128, 256
"""Kinds, as bits: a text without the bit skips that part of the work."""

RARE = 0.9
"""From this weight on a word counts as named or rare: beyond the 8,000 most frequent words."""


LONGEST_KEPT = 48
"""Characters of the longest word worth remembering."""

DIRECTIONS = listed("from to into onto than over before after by for versus vs against")
"""Words that give what follows a role: exchanging what stands at two of them changes the question."""

NUMBER_WORDS = {
    word: value
    for value, word in enumerate(
        in_order(
            "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
            "seventeen eighteen nineteen twenty"
        )
    )
} | {
    word: value
    for value, word in zip(range(30, 100, 10), in_order("thirty forty fifty sixty seventy eighty ninety"), strict=True)
}
ORDINALS = {
    word: value
    for value, word in enumerate(
        in_order("first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth"), start=1
    )
}
SCALES = {"hundred": 100, "thousand": 1000, "million": 10**6, "billion": 10**9, "dozen": 12}
MONTHS = {
    name: number
    for number, names in enumerate(
        in_order(
            "january jan|february feb|march mar|april apr|may|june jun|july jul|august aug|september sep sept|"
            "october oct|november nov|december dec",
            "|",
        ),
        start=1,
    )
    for name in names.split()
}
WEEKDAYS = {
    name: number
    for number, names in enumerate(in_order("monday|tuesday|wednesday|thursday|friday|saturday|sunday", "|"))
    for name in (names, names + "s")
} | {"tue": 1, "tues": 1, "wed": 2, "thu": 3, "thur": 3, "thurs": 3, "fri": 4, "mon": 0, "sat": 5, "sun": 6}
UNSURE_DATES = frozenset({"may", "mar", "march", "mon", "sat", "sun"})
"""Words that are dates only beside something that makes them one."""
_PAST = frozenset({"did", "was", "were", "had"})
_FUTURE = frozenset({"will", "shall", "gonna"})
CLOCK_WORDS = {"noon": 720, "midday": 720, "midnight": 0}
_ALWAYS_NUMBER = (
    frozenset([*NUMBER_WORDS, *ORDINALS, *SCALES, *WEEKDAYS, *CLOCK_WORDS, *MONTHS])
    - UNSURE_DATES
    - {"first", "second"}
)
_MAYBE_NUMBER = UNSURE_DATES | {"first", "second"}
"""Words that may be numbers, and are words as well: the first and the last train."""

_IRREGULAR = dict(
    pair.split(":")
    for pair in in_order("""
    fell:fall fallen:fall rose:rise risen:rise grew:grow grown:grow shrank:shrink bought:buy paid:pay
    sent:send got:get gotten:get gone:go went:go done:do did:do does:do made:make was:be were:be is:be
    are:be am:be been:be being:be has:have had:have lost:lose won:win children:child men:man women:woman
    took:take taken:take gave:give given:give came:come saw:see seen:see found:find kept:keep left:leave
    told:tell said:say sold:sell spent:spend wrote:write written:write broke:break broken:broken
    chose:choose chosen:choose forgot:forget forgotten:forget began:begin begun:begin ate:eat eaten:eat
    drove:drive driven:drive flew:fly flown:fly knew:know known:know ran:run stole:steal stolen:steal
    woke:wake lent:lend built:build meant:mean met:meet held:hold heard:hear felt:feel slept:sleep
    taught:teach thought:think brought:bring caught:catch hid:hide hidden:hide feet:foot teeth:tooth
    mice:mouse lives:life wives:wife knives:knife leaves:leave cancelled:cancel canceled:cancel
    cancelling:cancel canceling:cancel travelling:travel centre:center theatre:theater metre:meter
    litre:liter fibre:fiber cheque:check programme:program licence:license defence:defense tyre:tire
    grey:gray kerb:curb instalment:installment
    """)
)
_NOT_STEMMED = listed("""
    evening morning during nothing something anything everything king wedding string spring ceiling sibling
    speed exceed proceed succeed hundred breed indeed naked sacred news series species always less unless
    across address process access business class previous plus bus gas lens yes this his hers its us as is
    was has does thus canvas christmas texas paris perhaps sometimes besides towards whereas means pass miss
    loss boss cross press physics mathematics economics politics analysis basis crisis status virus bonus
    campus census focus
    """)

_PARTS = re.compile(r"[぀-ヿ㐀-鿿가-힯]|[^\W_぀-ヿ㐀-鿿가-힯]+(?:'[a-z]+)?")
_LETTERS = re.compile(r"[^\W\d_]{2,}")
AFTER_DIGITS = listed("am pm st nd rd th kg km cm mm mb gb tb kb ml mg ms px oclock")


class Word(NamedTuple):
    """What a written word stands for."""

    tokens: tuple[str, ...]
    kinds: int
    mass: float
    """Sum of the tokens' weights."""
    keys: tuple[str, ...]
    """The tokens that are named or rare."""
    poles: tuple[str, ...]
    """The tokens with a known opposite, or with a prefix that turns them round."""


class _Weights(dict[str, float]):
    """Canonical token to weight, filled on demand."""

    def __missing__(self, token: str) -> float:
        if len(self) >= KEPT:
            self.clear()
        weight = self[token] = _weight(token)
        return weight


WEIGHTS = _Weights()


@cache
def ranks() -> dict[str, int]:
    """Return the bundled vocabulary's whole words with their rank by frequency, "the" being 0."""
    import orjson

    from recall_cli.cache.embed.registry import bundled_folder

    vocabulary = orjson.loads((bundled_folder() / "tokenizer.json").read_bytes())["model"]["vocab"]
    first = vocabulary["the"]
    return {word: id - first for word, id in vocabulary.items() if id >= first and not word.startswith("##")}


_known: dict[str, Word] = {}


def read(written: str) -> Word:
    """Return what a space-separated piece of text stands for."""
    global _known
    word = _known.get(written)
    if word is None:
        word = _read(written)
        if len(written) <= LONGEST_KEPT:
            if len(_known) >= KEPT:
                # A new dict, not clear(): another thread may be reading the old one.
                _known = {}
            _known[written] = word
    return word


def memory() -> dict[str, Word]:
    """Return the words remembered so far, for a caller that reads many in a row."""
    return _known


def plain(text: str) -> str:
    """Return text in lower case without accents, with straight apostrophes."""
    text = text.lower().replace("\u2019", "'").replace("\u2018", "'")
    if text.isascii():
        return text
    # Only marks on Latin letters: taking them from other scripts would change the word.
    composed = unicodedata.normalize("NFKD", text)
    return unicodedata.normalize("NFC", "".join(c for c in composed if not "\u0300" <= c <= "\u036f"))


def _read(written: str) -> Word:
    kinds = 0
    tokens: list[str] = []
    letters = written.strip("\"'([{<*_`.,;:!?")
    # A capital that sentence case does not explain is looked for where the word stands (text_facts).
    if any(c.isupper() for c in letters) and letters not in ("I", "I'm", "I've", "I'll", "I'd"):
        kinds |= CAPITAL
    if letters.removesuffix("'s") in ("US", "U.S"):
        # The one country that lower case turns into a pronoun.
        return _word(["usa"], CAPITAL)
    for part in _PARTS.findall(plain(written)):
        kinds |= _part(part, tokens)
    if any(c in "%$£€¥" for c in written):
        kinds |= NUMBER
    for token in tokens:
        if token in NEGATORS:
            kinds |= NEGATION
        if token in DIRECTIONS:
            kinds |= ROLE
    word = _word(tokens, kinds | (GOING if written == "going" else 0))
    return word._replace(kinds=word.kinds | (KEY if word.keys else 0) | (POLE if word.poles else 0))


def _word(tokens: list[str], kinds: int) -> Word:
    vocabulary = ranks()
    return Word(
        tuple(tokens),
        kinds,
        sum([WEIGHTS[token] for token in tokens]),
        tuple([token for token in tokens if WEIGHTS[token] >= RARE]),
        tuple([token for token in tokens if token in OPPOSITES or BARE[token] in vocabulary]),
    )


def _part(part: str, tokens: list[str]) -> int:
    """Add the tokens of one run of letters and digits; return its kinds."""
    base, _, tail = part.partition("'")
    if tail == "t" and base.endswith("n"):
        base = {"can": "can", "won": "will", "shan": "shall"}.get(base, base[:-1])
        tokens += [canonical(base), "not"]
        return NEGATION | (PAST if base in _PAST else FUTURE if base in _FUTURE else 0)
    if tail == "ll":
        tokens += [canonical(base), "will"]
        return FUTURE
    if base in (
        "cant",
        "dont",
        "wont",
        "isnt",
        "doesnt",
        "didnt",
        "arent",
        "couldnt",
        "shouldnt",
        "wasnt",
        "havent",
        "hasnt",
    ):
        tokens += [canonical("can" if base == "cant" else base[:-2].removesuffix("n")), "not"]
        return NEGATION
    if base == "cannot":
        tokens += ["can", "not"]
        return NEGATION
    if any(c.isdigit() for c in base):
        # The digits are `cache.evidence.numbers`' business; letters that belong to a code ("p60", "2fa") stay a word.
        tokens += [canonical(run) for run in _LETTERS.findall(base) if run not in AFTER_DIGITS]
        return NUMBER
    if base in _ALWAYS_NUMBER:
        return NUMBER
    tokens.append(canonical(base))
    if base in _MAYBE_NUMBER:
        return NUMBER
    return PAST if base in _PAST else FUTURE if base in _FUTURE else 0


def canonical(word: str) -> str:
    """Return the form that stands for a lower-case word."""
    stem = _stem(word)
    return HEADS.get(stem, stem)


def _stem(word: str) -> str:
    if word in HEADS or word in FILLERS or word in OPPOSITES or word in NEGATORS:
        return word
    irregular = _IRREGULAR.get(word)
    if irregular is not None:
        return irregular
    if len(word) < 4 or word in _NOT_STEMMED or not word.isascii():
        return word
    vocabulary = ranks()
    shorter = _shorter(word)
    for stem in shorter:
        if stem in OPPOSITES or stem in HEADS:
            return stem
    found = [stem for stem in shorter if stem in vocabulary]
    if found:
        return min(found, key=vocabulary.__getitem__)
    if word not in vocabulary and word.endswith("s") and not word.endswith(("ss", "us", "is")):
        return word[:-1]
    return word


def _shorter(word: str) -> list[str]:
    """Return what the word may be a form of."""
    out: list[str] = []
    if word.endswith("ies") and len(word) > 4:
        out = [word[:-3] + "y", word[:-1]]
    elif word.endswith(("ches", "shes", "sses", "xes", "zes")):
        out = [word[:-2]]
    elif word.endswith("s") and not word.endswith(("ss", "us", "is")):
        out = [word[:-1]]
    elif word.endswith("ing") and len(word) > 5:
        out = _without(word[:-3])
    elif word.endswith("ied") and len(word) > 4:
        out = [word[:-3] + "y"]
    elif word.endswith("ed") and len(word) > 4:
        out = _without(word[:-2])
    elif word.endswith("our") and len(word) > 5:
        out = [word[:-3] + "or"]
    elif word.endswith(("ise", "yse")) and len(word) > 5:
        out = [word[:-2] + "ze"]
    elif word.endswith("isation"):
        out = [word[:-7] + "ization"]
    return [stem for stem in out if len(stem) > 2 and any(c in "aeiouy" for c in stem)]


def _without(stem: str) -> list[str]:
    """Return the words a stem that lost -ing or -ed may be: put(t)ing, mak(e)ing, fix(-)ing."""
    out = [stem, stem + "e"]
    if len(stem) > 3 and stem[-1] == stem[-2] and stem[-1] not in "ls":
        out = [stem[:-1]]
    elif len(stem) > 3 and stem[-1] == stem[-2]:
        out.append(stem[:-1])
    return out


def _weight(token: str) -> float:
    if token in FILLERS:
        return FILLER_WEIGHT
    rank = ranks().get(token)
    if rank is None:
        # One CJK character is a known word of that script, not a rare one.
        return 0.5 if len(token) == 1 else 1.0
    return max(FILLER_WEIGHT, rank / (rank + HALF))
