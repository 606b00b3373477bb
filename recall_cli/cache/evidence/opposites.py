"""Words that turn a question round: negators, and words with their opposites.

Ours, written down from everyday English and checked by tests for symmetry. All words are in the
canonical form of `cache.evidence.lexicon` (singular, no -ing or -ed, the head of their synonyms).
"""

from __future__ import annotations

from recall_cli.cache.evidence.synonyms import listed

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
