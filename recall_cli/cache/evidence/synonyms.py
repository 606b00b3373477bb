"""Words that may stand for one another in a request without changing what is asked.

A short list of ours, of everyday request English. It need not be complete: a missing pair costs a hit,
a wrong pair could cost a false one, so a word with two readings is left out.
"""

from __future__ import annotations


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
